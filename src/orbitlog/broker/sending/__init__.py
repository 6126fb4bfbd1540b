"""Sends: slow path, fast path, group commit and send responses."""
