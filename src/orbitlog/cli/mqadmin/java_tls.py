"""TLS settings of Apache's tool: `-Dtls.…` in `JAVA_OPT_EXT`, and the file of `tls.config.file`."""

from __future__ import annotations

import shlex
from dataclasses import replace

from orbitlog.cli.contexts import Cluster
from orbitlog.settings.setting import SettingError
from orbitlog.settings.tls_options import tls_options
from orbitlog.settings.tls_settings import TLS_SETTINGS

_PREFIX = "-Dtls."


def with_java_tls(cluster: Cluster, java_options: str) -> Cluster:
    """Return the cluster with TLS as these options of Java ask for it.

    Servers are verified, also where Java's tool trusts each, unless `tls.client.authServer=false` or
    `tls.test.mode.enable=true` is given. Raise a `SettingError` for an unknown or invalid key.
    """
    texts: dict[str, str] = {}
    for word in shlex.split(java_options):
        if word.startswith(_PREFIX):
            key, _, text = word.removeprefix("-D").partition("=")
            if key not in TLS_SETTINGS:
                raise SettingError(f"{word} from JAVA_OPT_EXT: unknown TLS key")
            TLS_SETTINGS[key].check(text, "JAVA_OPT_EXT")
            texts[key] = text
    client = tls_options(texts).client
    if not client.is_on:
        return cluster
    check = ("full" if client.checks_host else "ca") if client.verifies else "none"
    files = client.files
    return replace(
        cluster,
        tls=check,
        ca_file=files.trust if client.verifies else "",
        cert_file=files.certificate,
        key_file=files.key,
        key_password=files.key_password,
    )
