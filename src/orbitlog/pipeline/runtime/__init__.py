"""Spark session, package shipping, task runs and stream shutdown that all pipeline jobs share."""
