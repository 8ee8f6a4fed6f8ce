"""A Kubernetes cluster behind a pool: workloads are pods, and each pod is a small node with an agent in it."""
