"""Rebuild: derives queue and index files from the log in tasks, and publishes them."""
