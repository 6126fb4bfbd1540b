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
    assert settings.unknown == settings.idle == ()


def test_unread_keys_are_reported() -> None:
    settings = load_nameserver_settings(None, {}, ["productEnvName=x", "listenPrt=7"])
    assert (settings.idle, settings.unknown) == (("productEnvName",), ("listenPrt",))


@pytest.mark.parametrize(
    "text", ["listenPort=70000", "listenPort=x", "orderMessageEnable=yes", "scanNotActiveBrokerInterval=0"]
)
def test_invalid_value_names_key_value_and_source(text: str) -> None:
    with pytest.raises(SettingError, match=f"{text} from the command line"):
        load_nameserver_settings(None, {}, [text])
