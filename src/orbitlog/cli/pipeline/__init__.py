"""`orbitlog pipeline`: rebuild, check, query, stats, export and dispatch on Spark."""
