"""Doctor's report of a store, made by `orbitlog doctor check` in a process of its own; repairs are only shown."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

from orbitlog.console.explorer.store_reading import store_path
from orbitlog.console.views.answers import Answer, ConsoleError

CHECK_SECONDS = 120.0
_PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
_FINDINGS_MAX = 500
_running = asyncio.Lock()


class FindingRow(Answer, kw_only=True):
    """One finding: its severity, text, consequence, the command that repairs it, and the offset of its bytes."""

    severity: str
    kind: str
    sentence: str
    consequence: str
    command: str | None
    physical_offset: int | None


class DoctorAnswer(Answer, kw_only=True):
    """The report of one store."""

    store: str
    is_sound: bool
    findings: list[FindingRow]
    left_out: int
    figures: dict[str, str]


async def examine_store(stores: dict[str, Path], name: str) -> DoctorAnswer:
    """Check a store; raise `ConsoleError` if another check runs, or if this one takes longer than two minutes."""
    path = store_path(stores, name)
    if _running.locked():
        raise ConsoleError(503, "another check is running; reload the page later")
    async with _running:
        process = await asyncio.create_subprocess_exec(
            *_PROGRAM, "doctor", "check", str(path), "--json", stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            sentence = f"the check takes longer than {CHECK_SECONDS:.0f} s: run `orbitlog doctor check {path}`"
            raise ConsoleError(504, sentence) from None
        finally:
            # Also if the visitor closes the page: the check of a large store reads it for minutes.
            if process.returncode is None:
                process.kill()
                await process.wait()
    lines = [json.loads(line) for line in output.splitlines() if line.strip()]
    if not lines:
        reason = errors.decode(errors="replace").strip().splitlines()
        raise ConsoleError(422, reason[-1] if reason else "the check printed nothing")
    *findings, summary = lines
    return DoctorAnswer(
        store=name,
        is_sound=process.returncode == 0,
        findings=[_row(finding) for finding in findings[:_FINDINGS_MAX]],
        left_out=max(0, len(findings) - _FINDINGS_MAX),
        figures={key: str(value) for key, value in summary.items() if isinstance(value, int | float | str | bool)},
    )


def _row(finding: dict[str, Any]) -> FindingRow:
    place = finding.get("physicalOffset")
    return FindingRow(
        severity=str(finding.get("severity", "")),
        kind=str(finding.get("kind", "")),
        sentence=f"{finding.get('path', '')}: {finding.get('reason', '')}",
        consequence=str(finding.get("consequence", "")),
        command=finding.get("command"),
        physical_offset=place if isinstance(place, int) else None,
    )
