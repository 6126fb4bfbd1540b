"""Which messages a subscription wants: SQL92 expressions over a message's properties."""
