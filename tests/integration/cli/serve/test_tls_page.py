"""The set-up of docs/tls.md runs as it is written, on free ports; plain and untrusting clients are refused."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.serving_process import PROGRAM, SECONDS_MAX, serving

PAGE = Path(__file__).resolve().parents[4] / "docs" / "tls.md"


def commands() -> list[list[str]]:
    fence = re.search(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert fence is not None
    return [shlex.split(line)[1:] for line in fence[1].splitlines()]


def test_set_up_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=SECONDS_MAX, env=environment)

    init, up, add, send = commands()
    assert run(init).returncode == 0
    with serving(*up, "--name-server-port", "0", "--broker-port", "0") as (_, ready):
        address = ready["name-server"]
        assert run([word.replace("127.0.0.1:9876", address) for word in add]).returncode == 0
        sent = run(send)
        assert (sent.returncode, sent.stderr) == (0, "")
        for words, reason in (
            (["-n", address], "connect with TLS"),
            (["-n", f"rocketmqs://{address}"], "the CA of the peer's certificate is not trusted"),
        ):
            refused = run(["topic", "list", *words])
            assert refused.returncode == 1 and reason in refused.stderr and len(refused.stderr.splitlines()) == 1
