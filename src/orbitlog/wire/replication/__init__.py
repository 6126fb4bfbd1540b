"""Replication wire: frames between the members of a group."""
