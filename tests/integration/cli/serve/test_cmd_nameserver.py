from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli

COMMAND = [sys.executable, "-c", "from orbitlog.cli.main import main; main()", "nameserver"]
PATIENCE_SECONDS = 60


def test_ready_then_stopped_by_term() -> None:
    with subprocess.Popen([*COMMAND, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        word, address, *_ = process.stdout.readline().decode().split()
        assert word == "ready"
        name, _, where = address.partition("=")
        host, _, port = where.rpartition(":")
        assert (name, host) == ("name-server", "127.0.0.1")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS):
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0


def test_the_ready_line_as_json_and_a_log_file(tmp_path: Path) -> None:
    command = [*COMMAND, "--port", "0", "--json", "--logs", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert facts["name-server"].startswith("127.0.0.1:")
    assert facts["log"] == str(tmp_path / "nameserver.log")
    assert "ready" in (tmp_path / "nameserver.log").read_text()


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_settings_can_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=1234\nproductEnvName=x\nnoSuchKey=1\n")
    result = CliRunner().invoke(cli, ["nameserver", "-c", str(path), "--host", "0.0.0.0", "--print-settings"])
    assert result.exit_code == 0
    assert "listenPort=1234\n" in result.stdout and "bindAddress=0.0.0.0\n" in result.stdout
    assert "productEnvName" not in result.stderr
    assert f"noSuchKey=1 from {path} is unknown" in result.stderr


def test_configs_of_a_java_name_server_are_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path, java = tmp_path / "namesrv.conf", tmp_path / "namesrv" / "kvConfig.json"
    path.write_text("listenPort=0\nbindAddress=127.0.0.1\n")
    java.parent.mkdir()
    java.write_text("{}")
    result = CliRunner().invoke(cli, ["nameserver", "-c", str(path)])
    assert result.exit_code == 2
    assert f"add kvConfigPath={java} to {path}" in result.stderr


def test_a_bad_setting_is_wrong_use() -> None:
    assert not any(name.startswith("ORBITLOG_NAMESRV_") for name in os.environ)
    result = CliRunner().invoke(cli, ["nameserver", "--set", "listenPort=x"])
    assert result.exit_code == 2
    assert "listenPort=x" in result.stderr
