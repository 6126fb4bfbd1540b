"""Access control: the decisions of Apache's brokers and of Orbitlog on the same accounts, and official clients.

Each cell is one signed request: a code, a role and a resource. A cell is allowed if the answer is anything but a
refusal of access control. `STRICTER` lists codes that Orbitlog refuses and Apache's broker serves, as
docs/access-control.md describes; a cell that Orbitlog allows and Apache's broker refuses is never accepted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.command import Command
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import java_command, run_program
from tests.interop.harness.secured_systems import ROLES, make_accounts, prepare, running
from tests.interop.harness.systems import APACHE_497, APACHE_550, ORBITLOG, System

pytestmark = pytest.mark.interop

SECONDS = 20.0
RELOAD_TRIES = 10  # each takes a second at least; brokers compare files every five
SEND = {"a": "P", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "j": "0", "k": "false", "m": "false"}
PULL = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0", "commitOffset": "0"}
PULL |= {"suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*"}


class Cell(NamedTuple):
    """One request; `{topic}` and `{group}` in fields and body stand for the resource."""

    code: int
    fields: dict[str, str]
    body: str = ""


CELLS = (
    Cell(310, {**SEND, "b": "{topic}", "i": ""}, "one"),
    Cell(320, {**SEND, "b": "{topic}", "i": "", "m": "true"}),
    Cell(11, {**PULL, "topic": "{topic}", "consumerGroup": "{group}"}),
    Cell(361, {**PULL, "topic": "{topic}", "consumerGroup": "{group}"}),
    Cell(12, {"topic": "{topic}", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}),
    Cell(14, {"topic": "{topic}", "consumerGroup": "{group}", "queueId": "0"}),
    Cell(15, {"topic": "{topic}", "consumerGroup": "{group}", "queueId": "0", "commitOffset": "0"}),
    Cell(29, {"topic": "{topic}", "queueId": "0", "timestamp": "1"}),
    Cell(30, {"topic": "{topic}", "queueId": "0"}),
    Cell(31, {"topic": "{topic}", "queueId": "0"}),
    Cell(
        34,
        {},
        '{{"clientID":"c","consumerDataSet":[{{"groupName":"{group}","consumeType":"CONSUME_PASSIVELY",'
        '"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"subscriptionDataSet":[{{"topic":"{topic}","subString":"*","subVersion":1}}]}}],"producerDataSet":[]}}',
    ),
    Cell(38, {"consumerGroup": "{group}"}),
    Cell(
        41,
        {},
        '{{"consumerGroup":"{group}","clientId":"c","mqSet":[{{"topic":"{topic}","brokerName":"b","queueId":0}}]}}',
    ),
    Cell(202, {"topic": "{topic}"}),
    Cell(203, {"consumerGroup": "{group}"}),
    Cell(208, {"consumerGroup": "{group}", "topic": "{topic}"}),
    Cell(25, {}, "traceOn=true\n"),
    Cell(26, {}),
    Cell(28, {}),
    Cell(43, {}),
    Cell(207, {"groupName": "{group}-gone"}),
    Cell(215, {"topic": "{topic}Gone"}),
)
RESOURCES = (("Mine", "mine"), ("Other", "other"))


async def request(client: RemotingClient, address: str, cell: Cell, role: str, topic: str, group: str) -> Command:
    fields = {name: text.format(topic=topic, group=group) for name, text in cell.fields.items()}
    body = cell.body.format(topic=topic, group=group) if "{" in cell.body else cell.body
    command = Command(cell.code, ext_fields=fields, body=body.encode())
    ROLES[role].sign(command)
    return await client.invoke(address, command, SECONDS)


def is_refused(answer: Command) -> bool:
    remark = answer.remark or ""
    if "AclException" in remark:
        return True
    words = ("has no permission", "check signature failed", "is not found", "not found.", "access rights")
    return answer.code == 16 and any(word in remark for word in words)


def decisions(system: System, generation: str) -> dict[tuple[int, str, str], bool]:
    """Return whether each cell is allowed."""

    async def ask() -> dict[tuple[int, str, str], bool]:
        client = RemotingClient()
        try:
            await prepare(client, system, generation)
            table = {}
            for cell in CELLS:
                for role in ROLES:
                    for topic, group in RESOURCES:
                        answer = await request(client, system.broker_address, cell, role, topic, group)
                        table[cell.code, role, topic] = not is_refused(answer)
            return table
        finally:
            await client.close()

    return asyncio.run(ask())


# Codes that Orbitlog refuses to roles without a permission, and an Apache broker serves to every signed request.
STRICTER = {
    "1.0": {14, 25, 26, 28, 29, 30, 31, 41, 43, 202, 203, 208, 320, 361},
    "2.0": {25, 26, 28, 43, 361},
}


@pytest.mark.parametrize(("generation", "apache"), [("1.0", APACHE_497), ("2.0", APACHE_550)])
def test_decisions_are_those_of_apache_or_stricter_where_documented(
    generation: str, apache: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    with running(apache, generation, tmp_path, packages_of) as system:
        theirs = decisions(system, generation)
    with running(ORBITLOG, generation, tmp_path, packages_of) as system:
        ours = decisions(system, generation)
    assert len(ours) > 250
    looser = {cell for cell in ours if ours[cell] and not theirs[cell]}
    stricter = {cell for cell in ours if theirs[cell] and not ours[cell]}
    assert not looser
    assert {code for code, _, _ in stricter} <= STRICTER[generation], sorted(stricter)
    assert all(ours[cell] == theirs[cell] for cell in ours if cell[1] in ("admin", "stranger", "wrong secret"))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize(
    ("generation", "kind"), [("1.0", APACHE_497), ("1.0", ORBITLOG), ("2.0", APACHE_550), ("2.0", ORBITLOG)]
)
def test_official_java_client_sends_and_consumes_with_its_credentials(
    generation: str, kind: str, version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    command = java_command(packages_of(version), tmp_path / "client")
    with running(kind, generation, tmp_path, packages_of) as system:

        def run(role: str, *more: str) -> list[dict[str, object]]:
            credentials = ROLES[role]
            words = [system.name_server_address, credentials.access_key, credentials.secret_key, "Mine", "mine", "50"]
            return run_program(command, "SignedClient", [*words, *more])

        make_accounts(system, generation)
        answers = run("admin")
        assert len(answers) == 2, answers
        sent, consumed = answers
        assert (sent["answer"], sent["count"]) == ("sent", 53)
        assert (consumed["answer"], consumed["complete"]) == ("consumed", True)
        assert run("admin", "token")[0]["answer"] == "sent"
        for role in ("denied", "wrong secret", "stranger"):
            (answer,) = run(role)
            assert answer["answer"] == "refused"


@pytest.mark.parametrize("kind", [APACHE_497, ORBITLOG])
def test_account_in_a_new_file_is_in_force_without_a_restart(
    kind: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    """The official client is admitted some seconds after its file appears in `conf/acl`, and refused after it goes."""
    command = java_command(packages_of("4.9.7"), tmp_path / "client")
    directory = tmp_path / kind / "home" / "conf" / "acl"
    directory.mkdir(parents=True)
    stranger = ROLES["stranger"]
    with running(kind, "1.0", tmp_path, packages_of) as system:
        make_accounts(system, "1.0")

        def until_answer(wanted: str) -> list[dict[str, object]]:
            words = [system.name_server_address, stranger.access_key, stranger.secret_key, "Mine", "mine", "5"]
            for _ in range(RELOAD_TRIES):
                answers = run_program(command, "SignedClient", words)
                if answers[0]["answer"] == wanted:
                    return answers
            raise AssertionError(answers)

        until_answer("refused")
        account = f"accessKey: {stranger.access_key}, secretKey: {stranger.secret_key}"
        permissions = "topicPerms: [Mine=PUB|SUB], groupPerms: [mine=SUB]"
        (directory / "more.yml").write_text(f"accounts:\n- {{{account}, {permissions}}}\n")
        sent, consumed = until_answer("sent")
        assert (sent["count"], consumed["complete"]) == (8, True)
        (directory / "more.yml").unlink()
        until_answer("refused")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_java_producer_over_its_quota_retries_or_reports_a_busy_broker(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    """A producer of 5.5.0 retries until the quota admits the message; one of 4.9.7 returns code 2."""
    options = ["-Dsigned.retries=1000000", "-Dsigned.timeoutMillis=20000"]
    command = java_command(packages_of(version), tmp_path / "client", options=options)
    quota = {"userMessagesPerSecondMax": "4"}
    with running(ORBITLOG, "2.0", tmp_path, packages_of, **quota) as system:
        make_accounts(system, "2.0")
        writer = ROLES["writer"]
        words = [system.name_server_address, writer.access_key, writer.secret_key, "Mine", "mine", "12"]
        first, *_ = run_program(command, "SignedClient", words)
        status = asyncio.run(quota_counter(system, writer.access_key))
    assert status > 0
    if version == "5.5.0":
        assert (first["answer"], first["count"]) == ("sent", 15), first
    else:
        assert first["answer"] == "refused"
        assert "CODE: 2 " in str(first["error"]) and "exceeds its quota of 4 messages a second" in str(first["error"])


async def quota_counter(system: System, account: str) -> int:
    """Return how often an account reached its quota, as `brokerStatus` shows it."""
    client = RemotingClient()
    try:
        command = Command(28)
        ROLES["admin"].sign(command)
        answer = await client.invoke(system.broker_address, command, SECONDS)
        return int(json.loads(answer.body)["table"].get(f"quotaReached_{account}", "0"))
    finally:
        await client.close()
