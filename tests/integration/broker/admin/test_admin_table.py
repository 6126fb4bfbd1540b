"""Handlers of operators' requests are imported with the first request, not at start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orbitlog.broker.admin.admin_table import ADMIN_CODES
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk


def test_every_admin_code_is_served(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for code in ADMIN_CODES:
            answer = await desk.ask(code)
            assert answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code
        assert len(set(ADMIN_CODES)) == len(ADMIN_CODES)
        assert (await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work)


def test_admin_handlers_are_not_imported_at_start() -> None:
    program = (
        "import orbitlog.broker.runtime.broker_node, sys; print(*(name for name in sys.modules if '.handle_' in name))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names = done.stdout.split()
    assert "orbitlog.broker.sending.handle_send" in names
    seldom = "topics groups progress runtime relay pop pop_acks assignment recall reply send_back lookup".split()
    assert not {f"handle_{each}" for each in seldom} & {name.rpartition(".")[2] for name in names}
