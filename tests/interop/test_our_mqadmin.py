"""`orbitlog mqadmin` prints at an Apache broker what Apache's own tool prints there, heads of tables to the blank."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.admin_script import COMMAND_SECONDS_MAX, STEPS, Tool, run_script, write_transcript
from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import JAVA_550, start_driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import APACHE_550, make_system

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")
THEIRS, OURS = "theirs", "ours"
# The tool of 5.5 prints a column more than that of 5.3, for an index that Orbitlog does not have.
ONLY_5_5 = {"queryMsgByKey": re.compile(r" (#IndexKey|TIME@AdminTopic@K@.*)$")}
# Their client makes a retry topic for the tool itself, and so counts one more.
COUNTED = ("wipeWritePerm", "addWritePerm")
NOT_OFFERED = ("haStatus",)


def our_tool(directory: Path) -> Tool:
    def run(words: Sequence[str]) -> tuple[str, str]:
        done = subprocess.run(
            [str(PROGRAM), "mqadmin", *words],
            cwd=directory,  # members of groups are written down in files there
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
        )
        assert done.returncode == 0 or words[0] in NOT_OFFERED, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    return run


@pytest.fixture(scope="module")
def transcripts(
    packages_of: Callable[[str], ApachePackages], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, list[str]]]:
    """What each tool prints at a fresh Apache broker of its own; both at the same time."""
    packages_of("5.5.0")
    directory = tmp_path_factory.mktemp("our-mqadmin")

    def transcript(whose: str) -> dict[str, list[str]]:
        home = directory / whose
        system = make_system(APACHE_550, home / "system", packages_of, {"transactionCheckInterval": 3_600_000})
        system.start()
        driver = start_driver(JAVA_550, home / "driver", packages_of)
        try:
            printed = run_script(Client(driver, system), our_tool(home) if whose == OURS else None)
        finally:
            driver.close()
            system.kill()
        write_transcript(printed, home / "transcript.txt")
        return printed

    with ThreadPoolExecutor() as both:
        return dict(zip((THEIRS, OURS), both.map(transcript, (THEIRS, OURS)), strict=True))


def said(name: str, lines: Sequence[str]) -> list[str]:
    """The output of a tool: of an error its code and sentence, not the class that threw it."""
    kept = []
    for line in lines:
        if line.startswith("!"):
            found = re.search(r"CODE: \d+ .*", line)
            kept += [f"! {found[0]}"] if found else []
        else:
            kept.append(ONLY_5_5[name].sub("", line).rstrip() if name in ONLY_5_5 else line)
    return kept


@pytest.mark.parametrize("name", [step.name for step in STEPS if step.words])
def test_a_verb_prints_what_apache_prints(name: str, transcripts: dict[str, dict[str, list[str]]]) -> None:
    theirs, ours = said(name, transcripts[THEIRS][name]), said(name, transcripts[OURS][name])
    if name in NOT_OFFERED:
        assert transcripts[OURS][name] != [] and ours == []
    elif name in COUNTED:
        assert [re.sub(r"\d+$", "N", line) for line in theirs] == [re.sub(r"\d+$", "N", line) for line in ours]
    elif name == "updateTopic with a bad name":
        assert theirs[0].startswith("! CODE: 29 DESC: The specified topic: bad/name,")
        assert ours[0].startswith("! CODE: 29 DESC: The specified topic: bad/name,")
    else:
        assert theirs == ours
