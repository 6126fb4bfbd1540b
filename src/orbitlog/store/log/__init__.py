"""The CommitLog: segments, append, the end of the log after a crash, property CRCs."""
