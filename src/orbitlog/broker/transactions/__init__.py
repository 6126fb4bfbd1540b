"""Transactions: half messages, end of transaction, transaction checks."""
