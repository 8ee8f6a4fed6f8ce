"""Who asks: users, tokens and their limits, and the one secret behind them."""
