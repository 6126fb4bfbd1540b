"""Commands of Orbitlog that must refuse a store: one sentence, and the tree as it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.store_kinds import fingerprint

START_SECONDS_MAX = 120
# Of a store that cannot be served, and of settings that cannot be honoured.
_REFUSED_CODES = (1, 2)
_PROGRAM = Path(sys.executable).with_name("orbitlog")


def refused_sentence(store: Path, arguments: Sequence[str]) -> str:
    """Run a command that must refuse the store: one line, a failure's exit code, and every byte and name as before."""
    before = fingerprint(store)
    done = subprocess.run([str(_PROGRAM), *arguments], capture_output=True, text=True, timeout=START_SECONDS_MAX)
    assert done.returncode in _REFUSED_CODES, (done.returncode, done.stdout, done.stderr)
    assert not done.stdout, "nothing is ready"
    assert fingerprint(store) == before
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("warning:")]
    assert len(sentences) == 1 and sentences[0].startswith("orbitlog: "), done.stderr
    return sentences[0]
