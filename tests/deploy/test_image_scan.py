"""Scan of images for secrets and file modes: it reports what it looks for, and allows published examples alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import image


def test_scan_reports_what_it_looks_for(tmp_path: Path) -> None:
    for name, mode, content in (
        ("setuid", 0o4755, b""),
        ("writable", 0o666, b""),
        ("id_rsa", 0o600, b""),
        ("key.pem", 0o644, b"-----BEGIN PRIVATE KEY-----\n" + b"A" * 64),
    ):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(mode)
    found = list(image.findings(tmp_path))
    assert [finding.partition(":")[0] for finding in sorted(found)] == ["/id_rsa", "/key.pem", "/setuid", "/writable"]


EXAMPLE = b"http://username:password@localhost"
PLANTED = b"http://ann:8f2c61@localhost"
S3_MODULE = "opt/orbitlog/lib/python3.11/site-packages/pyarrow/_s3fs.pyx"


def write_below(root: Path, name: str, content: bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)


def test_scan_allows_published_example_in_its_own_file_alone(tmp_path: Path) -> None:
    write_below(tmp_path, S3_MODULE, b"proxy = '%s'" % EXAMPLE)
    assert list(image.findings(tmp_path)) == []
    write_below(tmp_path, "etc/proxy.conf", EXAMPLE)
    write_below(tmp_path, f"srv/{S3_MODULE}", EXAMPLE)
    found = [finding.partition(":")[0] for finding in image.findings(tmp_path)]
    assert sorted(found) == ["/etc/proxy.conf", f"/srv/{S3_MODULE}"]


@pytest.mark.parametrize("order", [(EXAMPLE, PLANTED), (PLANTED, EXAMPLE)])
def test_scan_reports_secret_planted_beside_published_example(tmp_path: Path, order: tuple[bytes, bytes]) -> None:
    content = b" ".join(order)
    write_below(tmp_path, S3_MODULE, content)
    assert list(image.findings(tmp_path)) == [f"/{S3_MODULE}: looks like a secret at byte {content.index(PLANTED)}"]


def test_scan_reports_secret_in_large_file_and_key_in_library(tmp_path: Path) -> None:
    write_below(tmp_path, "opt/large", bytes(8 * 1024 * 1024) + b" ghp_" + b"a" * 36)
    write_below(tmp_path, "usr/lib/x86_64-linux-gnu/libgnutls.so.30.34.3", b"-----BEGIN PRIVATE KEY-----\n" + b"A" * 64)
    write_below(tmp_path, "opt/empty", b"")
    assert len(list(image.findings(tmp_path))) == 2
