"""Bodies of requests and responses: records of JSON, read as loosely as Java does, written compactly."""
