"""Development certificates: private files, nothing overwritten, names that cannot break openssl's configuration."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from orbitlog.remoting.tls.development_certificates import CertificateError, DevelopmentCa
from tests.support.certificates import server_files, shared_ca


def test_files_are_private() -> None:
    files = [Path(server_files().certificate), Path(server_files().key), *shared_ca().directory.glob("ca.*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(shared_ca().directory.stat().st_mode) == 0o700


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    key = tmp_path / "ca.key"
    key.write_text("kept")
    with pytest.raises(CertificateError, match=r"ca\.key exists"):
        DevelopmentCa(tmp_path).create()
    assert key.read_text() == "kept" and list(tmp_path.iterdir()) == [key]
    server_files()
    with pytest.raises(CertificateError, match=r"server\.pem exists"):
        shared_ca().issue_server("server", ["localhost"])


@pytest.mark.parametrize("name", ["a\nb", "$HOME", "a\\b", "a#b"])
def test_names_with_meaning_for_openssl_are_refused(name: str) -> None:
    with pytest.raises(CertificateError, match="not a valid name"):
        shared_ca().issue_client("broken", name)
    assert not (shared_ca().directory / "broken.key").exists()
