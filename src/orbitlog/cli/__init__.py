"""The command line. Each command is imported when it is called."""
