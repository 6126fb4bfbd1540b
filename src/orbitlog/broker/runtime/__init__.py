"""Wiring of the broker: settings, opening, listeners, background loops, registration."""
