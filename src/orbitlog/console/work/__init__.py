"""Work: long jobs of the console, with progress and cancel."""
