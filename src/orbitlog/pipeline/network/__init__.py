"""Network access of the pipeline: connections to clusters, queue discovery, pulls, and pulled records as batches."""
