"""Consumers: group membership, queue feeds, deliveries, readers."""
