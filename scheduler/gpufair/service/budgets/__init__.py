"""How budgets change while the service runs, and who hears of it."""
