"""Files of a store: found, read and written. Steps only: no threads and no clock of its own."""
