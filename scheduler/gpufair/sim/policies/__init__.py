"""The policies that can be compared. Each decides about the same events with the same actions."""
