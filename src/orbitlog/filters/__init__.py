"""Message filters: SQL92 expressions over a message's properties."""
