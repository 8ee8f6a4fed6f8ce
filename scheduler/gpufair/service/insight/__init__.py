"""What the API tells of workloads and GPUs beside what is now: reasons, the past, the future, figures, files."""
