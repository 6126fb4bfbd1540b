"""Jobs over store files that the doctor and Spark run: splits of the log, tasks, staging, check and rebuild."""
