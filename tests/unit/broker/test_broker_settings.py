"""Settings: where they come from, which win, and what is said of those that do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.broker import broker_settings as keys
from orbitlog.broker.broker_settings import BROKER_SETTINGS, BrokerSettings, load_broker_settings
from orbitlog.broker.java_keys import JAVA_KEYS
from orbitlog.store.store_settings import SettingError


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=file\nbrokerClusterName=file\nlistenPort=1\n")
    environment = {"ORBITLOG_SET_brokerName": "environment", "ORBITLOG_SET_listenPort": "2", "PATH": "x"}
    settings = load_broker_settings(file, ["listenPort=3"], environment)
    assert settings[keys.CLUSTER_NAME] == "file"
    assert settings[keys.BROKER_NAME] == "environment"
    assert settings[keys.LISTEN_PORT] == 3


def test_name_servers_come_from_javas_variable() -> None:
    assert load_broker_settings(None, [], {"NAMESRV_ADDR": "a:1;b:2"})[keys.NAME_SERVERS] == ("a:1", "b:2")
    both = load_broker_settings(None, ["namesrvAddr=c:3"], {"NAMESRV_ADDR": "a:1"})
    assert both[keys.NAME_SERVERS] == ("c:3",)


def test_what_does_nothing_is_told() -> None:
    settings = load_broker_settings(None, ["sendMessageThreadPoolNums=4", "brokerNam=x", "qqqq=1"], {})
    sentences = {complaint.key: complaint.sentence for complaint in settings.complaints}
    assert "no effect here" in sentences["sendMessageThreadPoolNums"]
    assert "did you mean brokerName?" in sentences["brokerNam"]
    assert sentences["qqqq"].endswith("is unknown")


@pytest.mark.parametrize(
    "text",
    [
        "listenPort=99999",
        "brokerName=a/b",
        "brokerName=",
        "brokerIP1=host.example",
        "namesrvAddr=nonsense",
        "flushDiskType=SOMETIMES",
        "brokerRole=SLAVE",
        "brokerId=1",
        "longPollingEnable=yes",
        "maxMessageSize=99999999",
        "mappedFileSizeConsumeQueue=7",
    ],
)
def test_a_mistake_names_key_and_source(text: str) -> None:
    with pytest.raises(SettingError, match=f"{text.split('=')[0]}=.* from the command line"):
        load_broker_settings(None, [text], {})


def test_effective_settings_can_be_given_back(tmp_path: Path) -> None:
    settings = load_broker_settings(None, ["brokerName=mine", "deleteWhen=04;16"], {})
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={text}\n" for key, text in settings.effective().items()))
    again = load_broker_settings(file, [], {})
    assert again.effective() == settings.effective() and not again.complaints


def test_a_change_is_whole_or_nothing() -> None:
    settings = BrokerSettings()
    with pytest.raises(SettingError):
        settings.change({"maxMessageSize": "2048", "brokerName": "other"})
    assert settings[keys.MESSAGE_BYTES] == 4 * 1024 * 1024


def test_keys_are_javas_but_for_our_own() -> None:
    for key in BROKER_SETTINGS.keys() - JAVA_KEYS:
        assert "Orbitlog's own key" in BROKER_SETTINGS[key].help, key


def test_an_option_with_a_wrong_value_says_which() -> None:
    with pytest.raises(SettingError, match=r"bindAddress=999\.1 from the command line: '999\.1' is not an IP address"):
        BrokerSettings({}).with_texts({"bindAddress": "999.1"})
