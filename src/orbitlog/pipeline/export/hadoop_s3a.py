"""Hadoop's s3a: lets Spark itself read and write an object store, with the settings of AWS tools.

Exports need no s3a, because their tasks write through Arrow. Spark does, for `spark.read`, `--out` of a query and
checkpoints. PySpark has no s3a of its own: the package hadoop-aws of its Hadoop version must be on the class path.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.runtime.location_files import s3_endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASSES = ("org.apache.hadoop.fs.s3a.S3AFileSystem", "software.amazon.awssdk.services.s3.S3Client")


class S3aUnavailable(OrbitlogError):
    """Spark has no s3a; the message names the package."""


def s3a_settings() -> dict[str, str]:
    """Return Hadoop's settings for the endpoint and region of the environment; it reads the credentials itself."""
    settings = {}
    if (region := os.environ.get("AWS_REGION")) is not None:
        settings["fs.s3a.endpoint.region"] = region
    if (endpoint := s3_endpoint()) is not None:
        # Servers other than Amazon's have no host name for each bucket.
        settings |= {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    return settings


def enable_s3a(spark: SparkSession) -> None:
    """Prepare a session for `s3a://` locations; raise `S3aUnavailable` if the package is missing."""
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    missing = [name for name in _CLASSES if hadoop.getClassByNameOrNull(name) is None]
    if missing:
        version = context._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        raise S3aUnavailable(
            f"Spark has no s3a, because {missing[0]} is not on its class path; set"
            f" PYSPARK_SUBMIT_ARGS='--packages org.apache.hadoop:hadoop-aws:{version} pyspark-shell'"
        )
    for name, text in s3a_settings().items():
        hadoop.set(name, text)


def spark_location(spark: SparkSession, uri: str) -> str:
    """Return a URI as Spark takes it, `s3a://` for `s3://`, and prepare the session for it."""
    if urlparse(uri).scheme not in ("s3", "s3a"):
        return uri
    enable_s3a(spark)
    return f"s3a://{uri.partition('://')[2]}"
