"""What commands that serve do before they serve."""

from __future__ import annotations

import resource

from orbitlog.cli.serving import raise_open_files

WANTED = 65_536


def test_a_server_may_open_as_many_files_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    fewer = allowed // 2
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (fewer, hard))
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
