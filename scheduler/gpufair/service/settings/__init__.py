"""What is configured: ``gpufair.toml`` and the budgets file, each read as a whole, each error with its line."""
