from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.cli.contexts import Cluster
from orbitlog.cli.mqadmin.java_tls import with_java_tls
from orbitlog.settings.setting import SettingError


def test_options_of_java_switch_tls_on(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.test.mode.enable=false\ntls.client.trustCertPath=/ca.pem\ntls.client.authServer=true\n")
    cluster = with_java_tls(Cluster("h:1"), f"-Xmx1g -Dtls.enable=true -Dtls.config.file={file}")
    assert cluster == Cluster("h:1", tls="full", ca_file="/ca.pem")
    cluster = with_java_tls(Cluster("h:1"), "-Dtls.enable=true -Dtls.test.mode.enable=true")
    assert cluster == Cluster("h:1", tls="none")
    assert with_java_tls(Cluster("h:1"), "-Dtls.enable=false") == Cluster("h:1")


@pytest.mark.parametrize("option", ["-Dtls.enabled=true", "-Dtls.enable=yes"])
def test_unknown_option_is_refused(option: str) -> None:
    with pytest.raises(SettingError, match="JAVA_OPT_EXT"):
        with_java_tls(Cluster("h:1"), option)
