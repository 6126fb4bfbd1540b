"""The commands of docs/access-control.md run as they are written, on free ports and in a directory of the test."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving_process import PROGRAM, SECONDS_MAX, serving

PAGE = Path(__file__).resolve().parents[4] / "docs" / "access-control.md"
FREE_PORTS = ("--name-server-port", "0", "--broker-port", "0")
PLAIN = "accounts: [{accessKey: operator, secretKey: operator-secret, admin: true}]\n"


def fences() -> Iterator[list[list[str]]]:
    """Yield the commands of each block, as words without `orbitlog`."""
    for fence in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        yield [shlex.split(line)[1:] for line in fence.replace("\\\n", " ").splitlines()]


class Shell:
    """Runs commands with the paths and addresses of the page replaced by those of the test."""

    def __init__(self, directory: Path) -> None:
        self.places = {
            "/etc/orbitlog": str(directory / "etc"),
            "/opt/rocketmq": str(directory / "home"),
            "/var/lib/orbitlog": str(directory / "store"),
            "/var/log/orbitlog": str(directory / "log"),
        }
        self.credentials = ("ann", "secret")
        (directory / "etc").mkdir()
        (directory / "home" / "conf").mkdir(parents=True)
        (directory / "home" / "conf" / "plain_acl.yml").write_text(PLAIN)

    def words(self, command: list[str]) -> list[str]:
        replaced = []
        for word in command:
            for text, place in self.places.items():
                word = word.replace(text, place)
            replaced.append(word)
        return replaced

    def run(self, command: list[str]) -> str:
        access_key, secret_key = self.credentials
        environment = {**os.environ, "ORBITLOG_ACCESS_KEY": access_key, "ORBITLOG_SECRET_KEY": secret_key}
        words = self.words(command)
        if words[:3] == ["access", "user", "add"]:
            words.append("--password-stdin")
        done = subprocess.run(
            [*PROGRAM, *words], capture_output=True, text=True, timeout=SECONDS_MAX, env=environment, input="secret\n"
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (words, done.stdout, done.stderr)
        return done.stdout

    def run_all(self, commands: list[list[str]]) -> str:
        return "".join(map(self.run, commands))


def test_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    (up,), (plain_up,), users, offline, accounts, quotas, nodes = fences()

    with serving(*up, *FREE_PORTS, "--store", str(tmp_path / "store")) as (_, ready):
        shell.places["127.0.0.1:10911"] = ready["broker"]
        printed = shell.run_all(users)
        assert "User:bob" in printed and "Topic:Orders" in printed
        assert "messagesPerSecond" in shell.run_all([[*command, "--json"] for command in quotas])

    with serving(*shell.words(plain_up), *FREE_PORTS, "--store", str(tmp_path / "plain")) as (_, ready):
        shell.places["127.0.0.1:10911"] = ready["broker"]
        shell.credentials = ("operator", "operator-secret")
        printed = shell.run_all(accounts)
        assert "operator" in printed and "operator-secret" not in printed

    assert "Allow" in shell.run_all(offline)

    add, name_server, broker = nodes
    shell.run(add)
    with serving(*shell.words(name_server), "--port", "0") as (_, ready):
        shell.places["127.0.0.1:9876"] = ready["name-server"]
        shell.credentials = ("node", "secret")
        with serving(*shell.words(broker), "--port", "0", "--store", str(tmp_path / "node")) as (_, node):
            assert node["broker"] in shell.run(["mqadmin", "clusterList", "-n", ready["name-server"]])
            shell.credentials = ("node", "wrong")
            refused = subprocess.run(
                [*PROGRAM, "mqadmin", "clusterList", "-n", ready["name-server"]],
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
            )
            assert node["broker"] not in refused.stdout
        audit = [json.loads(line) for line in (tmp_path / "log" / "access.log").read_text().splitlines()]
        assert {line["decision"] for line in audit} == {"refused"}
