"""What runs on a node, beside the user's code: agent, supervisors, checkpoints. Kept light on purpose."""
