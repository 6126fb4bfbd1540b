"""Load for a broker by Spark's source and sink; jobs and responses as of `BrokerLoad.java`, for a comparison.

python -m benchmarks.spark_load NAME_SERVER BROKER

    consume TOPIC MESSAGES                        reads the topic from its start; bodies reach the JVM
    batch TOPIC THREADS BODY_BYTES MESSAGES SIZE  writes rows from that many partitions, in requests of SIZE rows
    copy FROM TO BODY_BYTES MESSAGES RATE         a stream from topic to topic beside a producer; latency percentiles
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from typing import Any

from benchmarks.measure import percentiles
from orbitlog.client.connection.connect import connect
from orbitlog.pipeline.runtime.session import build_session

MASTER = "local[2]"
_COLUMNS = "queueId int NOT NULL, queueOffset bigint NOT NULL, body binary NOT NULL, keys string"
_TIMES = "body binary NOT NULL, bornTimestamp timestamp NOT NULL, storeTimestamp timestamp NOT NULL"
_PATIENCE_S = 120


class SparkLoad:
    """A session, and the jobs on it."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._spark = build_session(MASTER, app_name="orbitlog-load")

    def run(self, words: list[str]) -> dict[str, float]:
        kind, *rest = words
        if kind == "consume":
            return self._consume(rest[0], int(rest[1]))
        if kind == "batch":
            return self._batch(rest[0], *map(int, rest[1:]))
        return self._copy(rest[0], rest[1], *map(int, rest[2:]))

    def _reader(self, reader: Any, topic: str) -> Any:
        return reader.format("rocketmq").options(
            nameServer=self._name_server, subscribe=topic, startingOffsets="earliest"
        )

    def _consume(self, topic: str, messages: int) -> dict[str, float]:
        began = time.perf_counter()
        frame = self._reader(self._spark.read, topic).schema(_COLUMNS).load()
        # Every body is touched in the JVM: a count alone would not need it.
        read, _ = frame.selectExpr("count(*)", "sum(length(body))").first()
        if read < messages:
            raise RuntimeError(f"{read} of {messages} messages were read")
        return {"seconds": time.perf_counter() - began, "messages": read, "failed": 0}

    def _batch(self, topic: str, threads: int, body_bytes: int, messages: int, size: int) -> dict[str, float]:
        # The same messages as Java's: one body, one tag, and a key for each, so neither client spends time on bodies.
        rows = self._spark.range(0, messages, 1, threads).selectExpr(
            f"X'{b'x'.hex() * body_bytes}' body", "'tag' tags", "concat('key', id) keys"
        )
        began = time.perf_counter()
        rows.write.format("rocketmq").mode("append").options(
            nameServer=self._name_server, topic=topic, batchRows=str(size), sendsInFlight="1"
        ).save()
        return {"seconds": time.perf_counter() - began, "messages": messages, "failed": 0}

    def _copy(self, source: str, target: str, body_bytes: int, messages: int, rate: int) -> dict[str, float]:
        checkpoint = tempfile.mkdtemp(prefix="orbitlog-copy-")
        stream = self._reader(self._spark.readStream, source).option("startingOffsets", "latest").schema(_TIMES).load()
        # The copy carries the time at which the original was stored.
        copied = stream.selectExpr("cast(unix_micros(storeTimestamp) as string) body")
        writer = copied.writeStream.format("rocketmq").option("nameServer", self._name_server)
        query = writer.options(topic=target, checkpointLocation=checkpoint).trigger(processingTime="0 seconds").start()
        try:
            self._wait(lambda: query.lastProgress is not None)
            began = time.perf_counter()
            producer = threading.Thread(target=self._produce, args=(source, body_bytes, messages, rate))
            producer.start()
            producer.join()
            self._wait(lambda: self._count(target) >= messages)
            seconds = time.perf_counter() - began
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        rows = self._reader(self._spark.read, target).schema(_TIMES).load()
        late = rows.selectExpr("(unix_micros(storeTimestamp) - cast(cast(body as string) as bigint)) / 1000 ms")
        p50, p99 = percentiles([row.ms for row in late.collect()])
        return {"seconds": seconds, "messages": messages, "failed": 0, "p50Ms": p50, "p99Ms": p99}

    def _produce(self, topic: str, body_bytes: int, messages: int, rate: int) -> None:
        with connect(f"rocketmq://{self._name_server}") as mq:
            began = time.perf_counter()
            for number in range(messages):
                mq.send(topic, b"x" * body_bytes)
                time.sleep(max(began + (number + 1) / rate - time.perf_counter(), 0))

    def _count(self, topic: str) -> int:
        with connect(f"rocketmq://{self._name_server}") as mq:
            ranges = mq.admin.topic_offsets(topic).values()
            return sum(one.max_queue_offset - one.min_queue_offset for one in ranges)

    @staticmethod
    def _wait(is_so: Any) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() > until:
                raise RuntimeError(f"not done in {_PATIENCE_S} s")
            time.sleep(0.1)


def main() -> None:
    load = SparkLoad(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            answer = load.run(line.split())
        except Exception as error:  # noqa: BLE001 - reported to the comparison, which ends
            print(f"failed {' '.join(str(error).split())[:500]}", flush=True)
            continue
        print("ok " + " ".join(f"{name}={value}" for name, value in answer.items()), flush=True)


if __name__ == "__main__":
    main()
