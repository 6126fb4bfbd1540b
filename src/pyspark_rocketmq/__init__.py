"""Makes `spark.read.format("rocketmq")` work with no registration: Spark looks for `DefaultSource` in `pyspark_*`."""
