"""Check: compares queues and index with the log in tasks."""
