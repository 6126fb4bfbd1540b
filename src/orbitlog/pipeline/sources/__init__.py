"""Data sources: topics and the CommitLog as Spark tables, batch and streaming."""
