"""Where workloads really run."""
