"""How notices reach people: taken from the outbox, and sent by mail or webhook."""
