"""The failover of the tour by itself, without Spark: another member takes over, and no message is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.cli.tour.tour_replicas import TourReplicas
from tests.support.etcd_servers import etcd_program

pytestmark = pytest.mark.xdist_group("etcd")


def test_another_member_takes_over_from_the_killed_master(tmp_path: Path) -> None:
    etcd_program()
    with TourReplicas(tmp_path) as replicas:
        done = replicas.fail_over()
    assert (done.before, done.after, done.missing) == (200, 200, 0)
