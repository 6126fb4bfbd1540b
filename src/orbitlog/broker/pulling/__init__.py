"""Pulls with long polling, queries by key and id, consumer offsets, and group filters."""
