"""Scheduled messages: delay levels, timer messages, recall."""
