"""Reads: messages by queue offset, physical offset, key and time."""
