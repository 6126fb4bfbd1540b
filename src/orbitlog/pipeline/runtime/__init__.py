"""Runtime of all pipeline jobs: Spark session, package shipping, task runner and shutdown of streaming queries."""
