"""Replay: sends messages of tables and stores back into topics, resumable and without duplicates."""
