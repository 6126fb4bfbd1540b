"""Data sources: topics and the CommitLog as Spark DataFrames, batch and streaming."""
