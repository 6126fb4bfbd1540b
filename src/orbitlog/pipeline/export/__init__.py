"""Export: writes topics to Parquet, Delta and Iceberg tables, batch and streaming."""
