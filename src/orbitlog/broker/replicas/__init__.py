"""Replicas: a broker as a member of a replica group, whose role a coordinator decides."""
