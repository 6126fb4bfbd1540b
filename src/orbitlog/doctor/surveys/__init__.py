"""Surveys: findings about config files, offsets, timers and messages beside the log."""
