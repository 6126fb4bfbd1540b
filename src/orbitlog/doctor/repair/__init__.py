"""Repair: plans and applies changes to a damaged store through a journal that can be undone."""
