"""Replica groups: automatic failover as a state machine without I/O, and the coordinators that record its decisions."""
