"""Replication: copies of the CommitLog on other brokers, and acknowledgement after they have it."""
