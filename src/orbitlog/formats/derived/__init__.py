"""Files derived from the log: queue units, index files, checkpoints, marks and the timer wheel."""
