"""Dispatch on Spark: derives queues and index of a live store in place of the broker."""
