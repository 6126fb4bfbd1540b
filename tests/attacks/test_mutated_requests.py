"""Mutated requests of every code over sockets: each is answered or ends its connection, and the servers continue.

`ORBITLOG_ATTACK` multiplies the number of requests. At 400, the value of `make attack`, a million frames go over short
connections, each of which ends with a damaged frame, and 100,000 requests of each code over long ones.
`ORBITLOG_ATTACK_COUNTS` names a file that records the progress, `ORBITLOG_ATTACK_RESULTS` one for the totals, and
`ORBITLOG_ATTACK_ENDED` one for the codes that are done: a run with the same file leaves those out.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from orbitlog.testing.running_broker import SETTINGS
from tests.support.mutated_load import Plan, Tally, ended_codes
from tests.support.mutations import Mutations, chosen_codes, names_by_code
from tests.support.raw_peer import RawPeer
from tests.support.serving_process import attacked

TIMES = int(os.environ.get("ORBITLOG_ATTACK", "1"))
SEED = int(os.environ.get("ORBITLOG_SEED", "20260612"))
FRAMES = 2_500 * TIMES
PER_CODE = 250 * TIMES if TIMES > 1 else 20
FRAMES_PER_CONNECTION = 32
REQUESTS_PER_CONNECTION = 5_000
ROOT = Path(__file__).resolve().parents[2]
CODES = chosen_codes(os.environ.get("ORBITLOG_ATTACK_CODES", ""))
PARTS = min(8, -(-len(CODES) // 8)) if TIMES > 1 else 1  # a part sends 8 codes at a time


def attack(store: Path, codes: list[int], per_code: int, per_connection: int) -> dict[int, Tally]:
    """Start a broker and a name server, send them the requests, and return what became of those of each code."""
    options = ("up", "--store", str(store), "--name-server-port", "0", "--broker-port", "0")
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    began = time.monotonic()
    path = os.environ.get("ORBITLOG_ATTACK_ENDED", "") if per_connection == REQUESTS_PER_CONNECTION else ""
    ended = ended_codes(path, SEED, per_code)
    tallies = {code: ended[code] for code in codes if code in ended}
    codes = [code for code in codes if code not in tallies]
    with attacked(*options, *settings) as (process, ready):
        addresses = [ready["broker"], ready["name-server"]]
        plan = Plan(addresses, codes, SEED, per_code, per_connection)
        plan.progress, plan.ended = os.environ.get("ORBITLOG_ATTACK_COUNTS", ""), path
        words = [sys.executable, "-m", "tests.support.mutated_load", orjson.dumps(plan).decode()]
        printed = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        for address, code in zip(addresses, (28, 206), strict=True):
            with RawPeer(address) as peer:
                peer.ask(code)
        assert process.poll() is None
    tallies |= {int(code): Tally(**fields) for code, fields in orjson.loads(printed).items()}
    report(tallies, time.monotonic() - began)
    return tallies


def report(tallies: dict[int, Tally], seconds: float) -> None:
    names = [field.name for field in dataclasses.fields(Tally)]
    totals = {name: sum(getattr(tally, name) for tally in tallies.values()) for name in names}
    fewest = min(tally.sent for tally in tallies.values())
    line = f"{len(tallies)} codes, at least {fewest} requests of each, {seconds:.0f} s: {totals}\n"
    sys.stdout.write(line)
    if path := os.environ.get("ORBITLOG_ATTACK_RESULTS"):
        with Path(path).open("a") as file:
            file.write(line)


def check(tallies: dict[int, Tally], codes: list[int], per_code: int) -> None:
    """Each request has a response, except those that wait by design; each damaged frame ends its connection."""
    assert sorted(tallies) == sorted(codes)
    for code, tally in tallies.items():
        assert tally.hung == tally.closed == tally.left_open == 0, (code, tally)
        assert tally.answered + tally.silent + tally.held + tally.damaged == tally.sent, (code, tally)
        assert tally.sent >= per_code and tally.damaged == tally.connections > 0, (code, tally)


def test_fields_of_every_header_are_mutated() -> None:
    """The names come from docstrings: one in another form, or in another directory, would leave a code without any."""
    names = names_by_code()
    for code, name in ((1003, "brokerAddress"), (1013, "registerCheckCode"), (3004, "username"), (51, "accessKey")):
        assert name in names[code], code
    frames = list(Mutations(1001, SEED).frames(400))
    assert 0 < sum(frame[4] for frame in frames) < len(frames), "both encodings of headers are sent"


def test_chosen_codes_are_those_of_the_list() -> None:
    assert chosen_codes("18,314-316,18") == [18, 314, 315, 316]
    assert len(chosen_codes("")) > 150
    with pytest.raises(ValueError, match=r"\[330\] are not request codes"):
        chosen_codes("329-330")


def test_codes_that_are_done_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITLOG_ATTACK_ENDED", str(tmp_path / "ended"))
    first = attack(tmp_path / "first", [28, 105], 40, REQUESTS_PER_CONNECTION)
    lines = (tmp_path / "ended").read_bytes().splitlines()
    assert len(lines) == 2
    (tmp_path / "ended").write_bytes(lines[0] + b"\n")
    assert attack(tmp_path / "second", [28, 105], 40, REQUESTS_PER_CONNECTION) == first
    assert len((tmp_path / "ended").read_bytes().splitlines()) == 2
    assert ended_codes(str(tmp_path / "ended"), SEED, 41) == {}, "of another count"


def test_mutated_frames_over_sockets_are_answered_or_end_their_connection(tmp_path: Path) -> None:
    per_code = -(-FRAMES // len(CODES))
    tallies = attack(tmp_path, CODES, per_code, FRAMES_PER_CONNECTION)
    check(tallies, CODES, per_code)
    assert sum(tally.sent for tally in tallies.values()) >= FRAMES


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_headers_and_bodies_of_every_code_are_answered(part: int, tmp_path: Path) -> None:
    codes = CODES[part::PARTS]
    check(attack(tmp_path, codes, PER_CODE, REQUESTS_PER_CONNECTION), codes, PER_CODE)
