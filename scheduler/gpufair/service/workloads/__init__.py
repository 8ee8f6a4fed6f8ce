"""What is known and done of workloads beside the core's decisions: everything that takes part in a turn of the runtime."""
