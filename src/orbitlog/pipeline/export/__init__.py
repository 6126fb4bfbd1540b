"""Export: topics to Parquet, Delta and Iceberg, batch and streaming."""
