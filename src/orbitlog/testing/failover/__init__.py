"""Failover simulation: replica groups under faults of network, disk, clock and coordinator, from a seed."""
