from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.nameserver.nameserver_settings import NAMESERVER_SETTINGS, NameServerSettings, load_nameserver_settings
from orbitlog.settings.setting import SettingError


def test_defaults_of_the_table_and_of_the_record_agree() -> None:
    texts = {key: setting.default for key, setting in NAMESERVER_SETTINGS.items()}
    shown = NameServerSettings().texts()
    assert shown.keys() == texts.keys()
    for key, default in texts.items():
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert shown[key] == ("" if default is None else text)
    assert (shown["bindAddress"], shown["listenPort"]) == ("127.0.0.1", "9876")


def test_file_then_environment_then_command_line(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=1\nbindAddress=0.0.0.0\norderMessageEnable=true\nkvConfigPath=/some/kv.json\n")
    environment = {"ORBITLOG_NAMESRV_listenPort": "2", "ORBITLOG_NAMESRV_bindAddress": "::1", "PATH": "x"}
    settings = load_nameserver_settings(path, environment, ["listenPort=3"])
    assert (settings.listen_port, settings.bind_address, settings.order_message_enable) == (3, "::1", True)
    assert settings.kv_config_path == Path("/some/kv.json")
    assert settings.warnings == ()


def test_keys_that_change_nothing_are_silent_and_others_are_reported() -> None:
    harmless = ["productEnvName=x", "serverWorkerThreads=64", "enableControllerInNamesrv=false", "configBlackList=a"]
    assert load_nameserver_settings(None, {}, harmless).warnings == ()
    [unknown] = load_nameserver_settings(None, {}, ["listenPrt=7"]).warnings
    assert unknown == "listenPrt=7 from the command line is unknown; did you mean listenPort?"
    [asks] = load_nameserver_settings(None, {}, ["clusterTest=true"]).warnings
    assert asks.startswith("clusterTest=true from the command line: routes of topics that no broker")


@pytest.mark.parametrize("source", ["file", "environment", "command line"])
@pytest.mark.parametrize(
    "line",
    [
        *("enableControllerInNamesrv=true", "tls.server.certificate=a.pem", "kvConfigpath=/kv.json"),
        *("aclEnabled=true", "tlsEnable=true", "ssl.enabled=true", "accessfile=/users.json"),
    ],
)
def test_protecting_key_is_refused_from_every_source(line: str, source: str, tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(line if source == "file" else "")
    key, value = line.split("=")
    environment = {f"ORBITLOG_NAMESRV_{key}": value} if source == "environment" else {}
    with pytest.raises(SettingError, match=f"{key}={value} from .*;"):
        load_nameserver_settings(path, environment, [line] if source == "command line" else [])


def test_last_value_of_a_protecting_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("enableControllerInNamesrv=true\nbindAddress=::1\n")
    assert load_nameserver_settings(path, {}, ["enableControllerInNamesrv=false"]).warnings == ()


def test_file_without_an_address_is_reported(tmp_path: Path) -> None:
    """A Java name server with this file listens on every address."""
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=1\n")
    [sentence] = load_nameserver_settings(path, {}, []).warnings
    assert "add bindAddress=0.0.0.0" in sentence
    assert load_nameserver_settings(path, {}, ["bindAddress=127.0.0.1"]).warnings == ()
    assert load_nameserver_settings(None, {}, []).warnings == ()


@pytest.mark.parametrize(
    "text", ["listenPort=70000", "listenPort=x", "orderMessageEnable=yes", "scanNotActiveBrokerInterval=0"]
)
def test_invalid_value_names_key_value_and_source(text: str) -> None:
    with pytest.raises(SettingError, match=f"{text} from the command line"):
        load_nameserver_settings(None, {}, [text])
