"""`orbitlog access tls init`: private files, settings that a server takes, nothing overwritten."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from orbitlog.remoting.tls.tls_contexts import client_context, server_context
from orbitlog.settings.tls_options import read_tls_file, tls_options


def test_init_writes_files_that_servers_and_clients_take(run: Any, tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    ran = run("access", "tls", "init", directory, "--host", "localhost", "--client-name", "alice", "--json")
    assert ran.exit_code == 0
    paths = [Path(row["file"]) for row in ran.rows]
    assert sorted(paths) == sorted(directory.iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    options = tls_options(read_tls_file(directory / "tls.properties"))
    assert options.server.mode == "permissive" and options.client.verifies
    server_context(options.server)
    client_context(options.client)
    before = {path: path.read_bytes() for path in paths}
    again = run("access", "tls", "init", directory)
    assert again.exit_code == 1 and "exists" in again.sentences[0]
    assert {path: path.read_bytes() for path in paths} == before
