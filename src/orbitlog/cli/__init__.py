"""The command line; each command is imported when it is called."""
