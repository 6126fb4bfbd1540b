"""The Spark jobs and data sources; the one room that knows Spark."""
