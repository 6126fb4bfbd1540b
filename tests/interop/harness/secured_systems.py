"""Systems with access control of either generation, and the accounts of the tests at them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitlog.access.credentials import Credentials
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.command import Command
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ORBITLOG, System, make_system

SECONDS = 20.0
ROLES = {
    "admin": Credentials("admin-user", "admin-secret"),
    "writer": Credentials("writer-user", "writer-secret"),
    "reader": Credentials("reader-user", "reader-secret"),
    "denied": Credentials("denied-user", "denied-secret"),
    "stranger": Credentials("stranger-user", "stranger-secret"),
    "wrong secret": Credentials("admin-user", "wrong-secret"),
}
PLAIN = """accounts:
- {accessKey: admin-user, secretKey: admin-secret, admin: true}
- {accessKey: writer-user, secretKey: writer-secret, topicPerms: [Mine=PUB], groupPerms: [other=DENY]}
- accessKey: reader-user
  secretKey: reader-secret
  topicPerms: [Mine=SUB]
  groupPerms: [mine=SUB]
- {accessKey: denied-user, secretKey: denied-secret, defaultTopicPerm: DENY, defaultGroupPerm: DENY}
"""


POLICIES = {
    "writer-user": [("Topic:Mine", ["Pub"], "Allow")],
    "reader-user": [("Topic:Mine", ["Sub", "Get"], "Allow"), ("Group:mine", ["Sub", "Get"], "Allow")],
    "denied-user": [("*", ["All"], "Deny")],
}


@contextmanager
def running(
    kind: str, generation: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], **more: str
) -> Iterator[System]:
    """Start a system of one kind with the accounts of `ROLES`, in 2.0 with the administrator alone."""
    admin = ROLES["admin"]
    home = tmp_path / kind / "home"
    if generation == "1.0":
        settings: dict[str, object] = {"aclEnable": "true"}
        if kind == ORBITLOG:
            settings["rocketmqHome"] = str(home)
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "plain_acl.yml").write_text(PLAIN)
    else:
        user = {"username": admin.access_key, "password": admin.secret_key}
        inner = {"accessKey": admin.access_key, "secretKey": admin.secret_key}
        provider = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
        settings = {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationMetadataProvider": provider.format("authentication", "Authentication"),
            "authorizationMetadataProvider": provider.format("authorization", "Authorization"),
            "initAuthenticationUser": json.dumps(user, separators=(",", ":")),
            "innerClientAuthenticationCredentials": json.dumps(inner, separators=(",", ":")),
        }
    if kind == ORBITLOG:
        settings["authenticationFailuresPerMinuteMax"] = "1000000"  # the tables have many refused cells
    system = make_system(kind, tmp_path / kind, packages_of, {**settings, **more})
    system.start()
    try:
        yield system
    finally:
        system.kill()


def make_accounts(system: System, generation: str) -> None:
    """Do what `prepare` does, with a client of its own."""

    async def make() -> None:
        client = RemotingClient()
        try:
            await prepare(client, system, generation)
        finally:
            await client.close()

    asyncio.run(make())


async def prepare(client: RemotingClient, system: System, generation: str) -> None:
    """Create topics, and in 2.0 users and policies, by Java's codes."""
    admin = ROLES["admin"]

    async def manage(code: int, body: object = None, **fields: str) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        command = Command(code, ext_fields=fields, body=raw)
        admin.sign(command)
        answer = await client.invoke(system.broker_address, command, SECONDS)
        assert answer.code == 0, (code, answer.remark)

    for topic in ("Mine", "Other"):
        more = {"readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        await manage(17, topic=topic, defaultTopic="TBW102", order="false", **more)
    if generation == "2.0":
        for role in ("writer", "reader", "denied"):
            credentials = ROLES[role]
            name = credentials.access_key
            await manage(3001, {"password": credentials.secret_key, "userType": "Normal"}, username=name)
            entries = [{"resource": res, "actions": act, "decision": dec} for res, act, dec in POLICIES[name]]
            policies = [{"policyType": "Custom", "entries": entries}]
            await manage(3006, {"subject": f"User:{name}", "policies": policies}, subject=f"User:{name}")
