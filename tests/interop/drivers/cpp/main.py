"""The official C++ client behind the line protocol of tests/interop/harness/drivers.py.

The wheel `rocketmq` carries the compiled client and Python declarations of its C interface.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from rocketmq import client
from rocketmq.ffi import MessageModel, dll

Words = dict[str, str]

PRINTING = threading.Lock()
PRODUCERS: dict[str, client.Producer] = {}
CONSUMERS: dict[str, client.PushConsumer] = {}
OK = client.SendStatus.OK

for name in ("SetProducerInstanceName", "SetPushConsumerInstanceName"):
    getattr(dll, name).argtypes = [ctypes.c_void_p, ctypes.c_char_p]
dll.GetMessageBody.restype = ctypes.c_char_p


def show(**line: object) -> None:
    with PRINTING:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def message(words: Words, index: int) -> tuple[client.Message, bytes]:
    body = words.get("body", "")
    if int(words.get("count", 1)) > 1:
        body = f"{body} {index}"
    if "bytes" in words:
        body = ("again and again " * (int(words["bytes"]) // 16 + 1))[: int(words["bytes"])]
    made = client.Message(words["topic"])
    made.set_body(body)
    if "tags" in words:
        tags = words["tags"].split(",")
        made.set_tags(tags[index % len(tags)])
    if "keys" in words:
        made.set_keys(words["keys"].replace("{}", str(index)))
    if "delayLevel" in words:
        made.set_delay_time_level(int(words["delayLevel"]))
    return made, body.encode()


def use_tls(kind: str, handle: object, words: Words) -> None:
    """Switch TLS on, with a `tls.properties` of Java; only libraries of 2.2 and later have these functions."""
    if "tlsFile" in words:
        set_file, switch_on = getattr(dll, f"Set{kind}SslPropertyFile"), getattr(dll, f"Set{kind}Ssl")
        set_file.argtypes, switch_on.argtypes = [ctypes.c_void_p, ctypes.c_char_p], [ctypes.c_void_p, ctypes.c_int]
        set_file(handle, words["tlsFile"].encode())
        switch_on(handle, 1)


def start_producer(words: Words) -> dict[str, object]:
    made = client.Producer(words["group"], timeout=10_000, max_message_size=4 << 20)
    made.set_namesrv_addr(words["nameServer"])
    use_tls("Producer", made._handle, words)
    if "accessKey" in words:
        made.set_session_credentials(words["accessKey"], words["secretKey"], "")
    dll.SetProducerInstanceName(made._handle, words["name"].encode())
    made.start()
    PRODUCERS[words["name"]] = made
    return {}


def send(words: Words) -> dict[str, object]:
    producer, sent = PRODUCERS[words["producer"]], []
    for index in range(int(words.get("count", 1))):
        made, body = message(words, index)
        if words.get("mode") == "oneway":
            producer.send_oneway(made)
            continue
        if "shards" in words:
            result = producer.send_orderly(made, index % int(words["shards"]))
        else:
            result = producer.send_sync(made)
        status = "SEND_OK" if result.status == OK else str(result.status)
        sent.append(
            {"status": status, "msgId": result.msg_id, "queueOffset": result.offset, "bodySha256": digest(body)}
        )
    return {"sent": sent}


def close_producer(words: Words) -> dict[str, object]:
    PRODUCERS.pop(words["name"]).shutdown()
    return {}


def push(words: Words) -> dict[str, object]:
    broadcasting = words.get("broadcasting") == "true"
    model = MessageModel.BROADCASTING if broadcasting else MessageModel.CLUSTERING
    made = client.PushConsumer(words["group"], orderly=words.get("orderly") == "true", message_model=model)
    made.set_namesrv_addr(words["nameServer"])
    use_tls("PushConsumer", made._handle, words)
    if "accessKey" in words:
        made.set_session_credentials(words["accessKey"], words["secretKey"], "")
    dll.SetPushConsumerInstanceName(made._handle, words["name"].encode())

    def arrived(one: client.RecvMessage) -> None:
        refused = one.reconsume_times < int(words.get("refuse", 0))
        body = one.body or b""
        show(
            event="message", consumer=words["name"], refused=refused, topic=one.topic, msgId=one.id,
            uniqueId=one.id, queueOffset=one.queue_offset, queueId=one.queue_id, tags=text(one.tags),
            keys=text(one.keys), reconsumeTimes=one.reconsume_times, bodySha256=digest(body), bodyLength=len(body),
            body=body.decode() if len(body) < 200 else None,
        )  # fmt: skip
        if refused:
            raise RuntimeError("refused, as the scenario wants")

    made.subscribe(words["topic"], arrived, expression=words.get("tags", "*"))
    made.start()
    CONSUMERS[words["name"]] = made
    return {}


def close_push(words: Words) -> dict[str, object]:
    CONSUMERS.pop(words["name"]).shutdown()
    return {}


ACTIONS = {
    "producer": start_producer, "send": send, "closeProducer": close_producer, "push": push, "closePush": close_push,
}  # fmt: skip


def answer(line: str) -> None:
    number, verb, *parts = line.rstrip("\n").split("\t")
    words = {name: unquote(value) for name, _, value in (part.partition("=") for part in parts)}
    try:
        show(re=number, **ACTIONS[verb](words))
    except Exception as failure:  # noqa: BLE001 - whatever the client raises is the answer
        show(re=number, error=type(failure).__name__, code=-1, message=str(failure))


def main() -> None:
    show(event="ready")
    with ThreadPoolExecutor(8) as workers:
        for line in sys.stdin:
            workers.submit(answer, line)


main()
