"""The Spark jobs and data sources; the only room that imports Spark."""
