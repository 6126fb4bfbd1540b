"""Certificate watch: the condition begins before the certificate ends, and ends when it is replaced."""

import shutil
import time

from orbitlog.observe.certificate_watch import CertificateWatch
from orbitlog.observe.conditions import Conditions
from tests.support.certificates import expired_server_files, server_files


def test_condition_lasts_until_the_certificate_is_replaced(tmp_path):
    path = tmp_path / "server.pem"
    shutil.copy(expired_server_files().certificate, path)
    conditions, now_ms = Conditions(), int(time.time() * 1000)
    watch = CertificateWatch(conditions, str(path))

    watch.check(now_ms)
    assert [(active.condition.name, active.subject) for active in conditions] == [("certificate_expiring", str(path))]
    shutil.copy(server_files().certificate, path)
    watch.check(now_ms + 59_999)
    assert list(conditions)
    watch.check(now_ms + 60_000)
    assert not list(conditions)
    assert conditions.began["certificate_expiring"] == 1
