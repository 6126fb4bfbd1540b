"""A driver of an export in a process of its own, without Spark: it is there to be killed.

python export_driver.py STORE TOPIC TARGET FORMAT BATCH_MESSAGES
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.sources.broker_stores import BrokerStore


def main() -> None:
    warnings.simplefilter("ignore")
    store, topic, target, table_format, batch_messages = sys.argv[1:]
    request = ExportRequest(
        (BrokerStore("b", store),), topic, Path(target), table_format, batch_messages=int(batch_messages)
    )
    print("ready", flush=True)
    for batch in export_topic(run_here, request):
        print(batch.number, flush=True)


if __name__ == "__main__":
    main()
