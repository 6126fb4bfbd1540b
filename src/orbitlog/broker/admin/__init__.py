"""Requests of clients' heartbeats and of operators: topics, groups, progress, runtime statistics."""
