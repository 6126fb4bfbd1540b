"""Accounts and users by Apache's admin tool and by `orbitlog mqadmin`, at Apache's brokers and at Orbitlog.

Each script runs at both brokers; what the tools print must be the same, except secrets, which Orbitlog does not return.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitlog.access.credentials import Credentials
from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import start_driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.secured_systems import ROLES, make_accounts, running
from tests.interop.harness.systems import APACHE_497, APACHE_550, ORBITLOG, System

pytestmark = pytest.mark.interop

SECONDS = 90
ADMIN = ROLES["admin"]
Tool = Callable[[System, str], list[str]]

SCRIPTS = {
    "1.0": (
        "updateAclConfig -b {b} -a account-one -s secret-one -i DENY -u SUB -t Mine=PUB|SUB,Other=DENY -g mine=SUB",
        "updateAclConfig -c {c} -a account-two -s secret-two -w 10.0.0.1 -m true",
        "updateAclConfig -b {b} -a account-one -s secret-three -t Mine=SUB",
        "updateAclConfig -b {b} -a short -s secret-one",
        "updateAclConfig -b {b} -a account-one -s secret-one -t Mine=WHAT",
        "getAclConfig -b {b}",
        "updateGlobalWhiteAddr -b {b} -g 10.10.103.*,192.168.0.1-9",
        "updateGlobalWhiteAddr -c {c} -g 10.10.104.*",
        "clusterAclConfigVersion -b {b}",
        "clusterAclConfigVersion -c {c}",
        "deleteAclConfig -b {b} -a account-two",
        "deleteAclConfig -b {b} -a account-two",
        "getAclConfig -c {c}",
    ),
    "2.0": (
        "createUser -b {b} -u bob -p bob-secret",
        "createUser -b {b} -u bob -p bob-secret",
        "createUser -c {c} -u eve -p eve-secret -t Super",
        "updateUser -b {b} -u eve -t Normal",
        "updateUser -b {b} -u bob -s disable",
        "updateUser -b {b} -u nobody -s disable",
        "getUser -b {b} -u bob",
        "getUser -b {b} -u nobody",
        "listUser -b {b} -f bo",
        "createAcl -b {b} -s User:bob -r Topic:Mine,Group:* -a Pub,Sub -d Allow -i 10.0.0.0/8",
        "createAcl -b {b} -s User:nobody -r Topic:Mine -a Pub -d Allow",
        "updateAcl -b {b} -s User:bob -r Topic:Mine -a Pub -d Deny",
        "getAcl -b {b} -s User:bob",
        "listAcl -b {b} -s bob",
        "copyAcl -f {b} -t {b} -s User:bob",
        "copyAcl -f {b} -t {b}",
        "deleteAcl -b {b} -s User:bob -r Topic:Mine",
        "listAcl -b {b} -r Group",
        "deleteAcl -b {b} -s User:bob",
        "deleteAcl -b {b} -s User:bob",
        "deleteUser -b {b} -u eve",
        "listUser -c {c} -f e",
    ),
}


@contextmanager
def apache_tool(version: str, directory: Path, packages_of: Callable[[str], ApachePackages]) -> Iterator[Tool]:
    """Start Apache's tool, with the credentials of an administrator in its `conf/tools.yml`."""
    driver = start_driver(f"java-{version}", directory, packages_of)
    write_credentials(directory, ADMIN)
    try:
        yield lambda system, words: _lines(Client(driver, system).mqadmin(words))
    finally:
        driver.close()


def write_credentials(directory: Path, credentials: Credentials) -> None:
    """Write the file from which Apache's tool reads its credentials, at each command."""
    tools = directory / "home" / "conf" / "tools.yml"
    tools.write_text(f"accessKey: {credentials.access_key}\nsecretKey: {credentials.secret_key}\n")


def our_tool(system: System, words: str) -> list[str]:
    program = Path(sys.executable).parent / "orbitlog"
    credentials = {"ORBITLOG_ACCESS_KEY": ADMIN.access_key, "ORBITLOG_SECRET_KEY": ADMIN.secret_key}
    environment = {**os.environ, "NAMESRV_ADDR": system.name_server_address, **credentials}
    command = [str(program), "mqadmin", *words.split()]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, env=environment, text=True)
    return _lines(done.stdout + done.stderr)


def _lines(printed: str) -> list[str]:
    """Return the lines of a verb that succeeded, or the code of its refusal."""
    codes = re.findall(r"CODE: (\d+)", printed)
    return [f"! {codes[0]}"] if codes else printed.splitlines()


def transcript(system: System, generation: str, tool: Tool) -> dict[str, list[str]]:
    """Run the script; return the lines of each step, with addresses, times, paths and secrets as words."""
    steps = {}
    for number, words in enumerate(SCRIPTS[generation]):
        printed = tool(system, words.format(b=system.broker_address, c=system.cluster_name))
        steps[f"{number} {words}"] = [line for line in map(_normalised, printed) if line]
    return steps


def _normalised(line: str) -> str:
    line = re.sub(r"(\d+\.){3}\d+:\d+", "ADDRESS", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"/\S+\.yml", "FILE", line)
    # Apache's tool prints the object that it sent by its hash code, and brokers of Apache return secrets.
    line = re.sub(r"org\.apache\.rocketmq\.\S+PlainAccessConfig@\w+", "", line)
    line = re.sub(r"\b(bob|eve|admin)-secret\b", "", line)
    line = re.sub(r"(secretKey *:).*", r"\1", line)
    return " ".join(line.split())


@pytest.mark.parametrize(("generation", "apache"), [("1.0", APACHE_497), ("2.0", APACHE_550)])
def test_tools_print_the_same_at_both_brokers(
    generation: str, apache: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    with apache_tool(apache.removeprefix("apache-"), tmp_path / "tool", packages_of) as tool:
        with running(apache, generation, tmp_path / "theirs", packages_of) as system:
            theirs = transcript(system, generation, tool)
        with running(ORBITLOG, generation, tmp_path / "ours", packages_of) as system:
            ours = transcript(system, generation, tool)
    with running(ORBITLOG, generation, tmp_path / "own-tool", packages_of) as system:
        by_our_tool = transcript(system, generation, our_tool)
    assert sum(map(bool, theirs.values())) >= len(theirs) - 3  # the tool prints nothing for an unknown user
    for step, lines in theirs.items():
        assert ours[step] == lines
        assert by_our_tool[step] == lines


VERBS = (
    "clusterList",
    "topicList",
    "topicRoute -t Mine",
    "topicStatus -t Mine",
    "brokerStatus -b {b}",
    "getBrokerConfig -b {b}",
    "updateBrokerConfig -b {b} -k traceOn -v true",
    "updateTopic -b {b} -t Mine -r 1 -w 1",
    "updateTopic -b {b} -t Other -r 1 -w 1",
    "updateSubGroup -b {b} -g mine",
    "consumerProgress -g mine",
    "queryMsgByKey -t Mine -k known",
    "sendMessage -t Mine -p body",
    "sendMessage -t Other -p body",
    "deleteSubGroup -b {b} -g unknown",
)
REFUSALS = ("AclException", "has no permission", "check signature failed", "is not found.", "username cannot be null")
# Verbs of topics, groups and messages; their requests need the same permissions in 2.0 at both brokers.
DATA_VERBS = ("topicStatus", "consumerProgress", "updateTopic", "sendMessage", "queryMsgByKey")
QUERY = "queryMsgByKey -t Mine -k known"


def sent_message_id(printed: str) -> str:
    found = re.search(r"SEND_OK +(\w+)", printed)
    assert found, printed
    return found[1]


def is_allowed(verb: str, printed: str, message_id: str) -> bool:
    """Return whether a verb was allowed. Two hide refusals: they report an unknown route, or find no message."""
    if verb.startswith("sendMessage"):
        return "SEND_OK" in printed
    if verb == QUERY:
        return message_id in printed
    return not any(text in printed for text in REFUSALS)


def verdicts(
    version: str, kind: str, generation: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> dict[tuple[str, str], bool]:
    """Return for each role and verb whether mqadmin was allowed to do it."""
    driver = start_driver(f"java-{version}", tmp_path / kind / "tool", packages_of)
    table = {}
    try:
        with running(kind, generation, tmp_path, packages_of) as system:
            make_accounts(system, generation)
            client = Client(driver, system)
            write_credentials(tmp_path / kind / "tool", ADMIN)
            # Without this route consumerProgress ends at the name server, and no broker decides on it.
            client.mqadmin(f"updateTopic -b {system.broker_address} -t %RETRY%mine -r 1 -w 1")
            message_id = sent_message_id(client.mqadmin("sendMessage -t Mine -k known -p body"))
            for role in ("admin", "writer", "reader", "denied", "wrong secret", "stranger"):
                write_credentials(tmp_path / kind / "tool", ROLES[role])
                for verb in VERBS:
                    printed = client.mqadmin(verb.format(b=system.broker_address))
                    table[role, verb] = is_allowed(verb, printed, message_id)
    finally:
        driver.close()
    return table


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize(("generation", "apache"), [("1.0", APACHE_497), ("2.0", APACHE_550)])
def test_mqadmin_of_each_version_is_allowed_what_apaches_broker_allows_or_less(
    generation: str, apache: str, version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    theirs = verdicts(version, apache, generation, tmp_path, packages_of)
    ours = verdicts(version, ORBITLOG, generation, tmp_path, packages_of)
    if generation == "1.0":
        # Brokers of 4.9.7 refuse every query of clients since 4.9.4: they leave a field out of the signature.
        queries = {cell: ours.pop(cell) for cell in list(ours) if cell[1] == QUERY}
        assert {role for (role, _), allowed in queries.items() if allowed} == {"admin", "reader"}
        assert not any(theirs[cell] for cell in queries)
    assert [cell for cell in ours if ours[cell] and not theirs[cell]] == []
    assert [cell for cell in ours if cell[0] == "admin" and not (ours[cell] and theirs[cell])] == []
    assert [cell for cell in ours if cell[0] in ("wrong secret", "stranger", "denied") and ours[cell]] == []
    if generation == "2.0":
        data = [cell for cell in ours if cell[1].startswith(DATA_VERBS)]
        assert [cell for cell in data if ours[cell] != theirs[cell]] == []
