"""Metrics of a broker: counters that are on only with metrics, readers of its tables, and health."""
