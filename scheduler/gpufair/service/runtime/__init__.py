"""The one task that owns the core's state, what it is rebuilt from, and who listens to it."""
