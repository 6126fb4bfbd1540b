"""Output of commands: tables, JSON lines, format strings, progress, and values as text."""
