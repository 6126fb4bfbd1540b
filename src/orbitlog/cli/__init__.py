"""The command line: one-word commands over everything. Each command is imported when it is called."""
