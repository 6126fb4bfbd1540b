"""Reload of certificates: a changed file gives new connections another one; files that do not fit keep the old."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from orbitlog.remoting.tls.server_tls import ServerTls
from orbitlog.settings.tls_options import ServerTlsOptions, TlsFiles
from tests.support.certificates import client_files, server_files


def copied(directory: Path) -> TlsFiles:
    files = TlsFiles(str(directory / "server.pem"), str(directory / "server.key"))
    shutil.copy(server_files().certificate, files.certificate)
    shutil.copy(server_files().key, files.key)
    return files


def test_reload_waits_for_both_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = copied(tmp_path)
    tls = ServerTls(ServerTlsOptions("enforcing", files))
    first = tls.context
    assert not tls.reload()
    shutil.copy(client_files().certificate, files.certificate)
    assert not tls.reload() and tls.context is first
    assert "those in force stay" in caplog.text and "is that of another certificate" in caplog.text
    caplog.clear()
    assert not tls.reload() and not caplog.records  # reported once
    shutil.copy(client_files().key, files.key)
    assert tls.reload() and tls.context is not first


def test_reload_without_the_file_keeps_the_context(tmp_path: Path) -> None:
    files = copied(tmp_path)
    tls = ServerTls(ServerTlsOptions("enforcing", files))
    first = tls.context
    Path(files.key).unlink()
    assert not tls.reload() and tls.context is first


def test_key_that_others_can_read_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = copied(tmp_path)
    Path(files.key).chmod(0o644)
    ServerTls(ServerTlsOptions("enforcing", files))
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "can be read by other users" in record.getMessage()
