"""What the service keeps in its database: the journal, and beside it outbox, stays, tokens, announcements, budgets' history, audit."""
