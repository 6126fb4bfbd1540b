"""Settings: their sources, which of them wins, and reports of those without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_settings import BROKER_SETTINGS, BrokerSettings, load_broker_settings
from orbitlog.settings.java_keys import JAVA_KEYS
from orbitlog.settings.setting import SettingError
from orbitlog.settings.setting_review import SettingClass
from orbitlog.settings.tls_settings import TLS_SETTINGS


def test_last_source_of_a_setting_wins(tmp_path: Path) -> None:
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


def test_load_reports_keys_that_no_table_reads_by_class() -> None:
    given = ["sendMessageThreadPoolNums=4", "timerStopEnqueue=true", "brokerNam=x", "qqqq=1"]
    settings = load_broker_settings(None, given, {})
    found = {complaint.key: (complaint.kind, complaint.sentence) for complaint in settings.complaints}
    assert found["sendMessageThreadPoolNums"] == (SettingClass.HARMLESS, "")
    assert found["timerStopEnqueue"] == (
        SettingClass.BEHAVIOUR,
        "timerStopEnqueue=true from the command line: timer messages are delivered nevertheless",
    )
    kind, sentence = found["brokerNam"]
    assert kind is SettingClass.UNKNOWN and "did you mean brokerName?" in sentence
    assert found["qqqq"][1].endswith("is unknown")


def test_load_safety_key_refused_from_every_source(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("enableSlaveActingMaster=TRUE\n")
    with pytest.raises(SettingError, match=r"enableSlaveActingMaster=TRUE from .*broker\.conf: no slave can take over"):
        load_broker_settings(file, [], {})
    with pytest.raises(SettingError, match="enableSlaveActingMaster=true from the environment: "):
        load_broker_settings(None, [], {"ORBITLOG_SET_enableSlaveActingMaster": "true"})
    with pytest.raises(SettingError, match="enableSlaveActingMaster=true from the command line: "):
        load_broker_settings(None, ["enableSlaveActingMaster=true"], {})


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (["enableControllerMode=true"], "enableControllerMode=true needs controllerAddr"),
        (["enableControllerMode=true", "controllerAddr=a"], "contains 'a', which is not host:port"),
        (["enableControllerMode=true", "controllerAddr=a:1", "replicaCoordinator=etcd:http://a:1"], "one or the other"),
        (["enableControllerMode=true", "controllerAddr=a:1", "haMasterAddress=b:1"], "the controller names the master"),
        (["enableControllerMode=true", "controllerAddr=a:1", "bindAddress=10.0.0.5"], "needs haMembers"),
        (["enableControllerMode=true", "controllerAddr=a:1", "bindAddress=0.0.0.0"], "needs brokerIP1"),
        (["enableControllerMode=true", "controllerAddr=a:1", "dispatchEngine=spark"], "dispatchEngine=spark"),
        (["minInSyncReplicas=2"], "minInSyncReplicas=2 needs enableControllerMode=true"),
        (["allAckInSyncStateSet=true"], "allAckInSyncStateSet=true needs enableControllerMode=true"),
    ],
)
def test_load_settings_of_a_controllers_group_that_cannot_work_are_refused(
    assignments: list[str], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        load_broker_settings(None, assignments, {})


def test_load_role_and_id_have_no_effect_in_a_controllers_group() -> None:
    given = ["enableControllerMode=true", "controllerAddr=a:1;b:2", "brokerRole=SLAVE", "brokerId=1"]
    settings = load_broker_settings(None, given, {})
    assert settings.is_group_member
    assert load_broker_settings(None, [*given[:3], "allAckInSyncStateSet=false"], {}).is_group_member
    assert not load_broker_settings(None, ["minInSyncReplicas=1", "allAckInSyncStateSet=false"], {}).is_group_member


def test_load_safety_key_switched_off_by_a_later_source_starts(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("enableSlaveActingMaster=true\n")
    assert load_broker_settings(file, ["enableSlaveActingMaster=false"], {}).complaints[0].kind is SettingClass.HARMLESS


def test_load_address_server_without_name_servers_refused() -> None:
    with pytest.raises(SettingError, match="register with no name server; set namesrvAddr=host:port"):
        load_broker_settings(None, ["fetchNamesrvAddrByAddressServer=true"], {})
    for more in (["namesrvAddr=a:1"], []):
        given = ["fetchNamesrvAddrByAddressServer=true", *more]
        settings = load_broker_settings(None, given, {"NAMESRV_ADDR": "b:2"})
        assert settings.complaints[0].kind is SettingClass.BEHAVIOUR


@pytest.mark.parametrize("texts", [["brokerRole=SLAVE"], ["brokerId=1"], ["brokerRole=SYNC_MASTER", "brokerId=2"]])
def test_role_and_id_that_contradict_each_other_are_refused(texts: list[str]) -> None:
    with pytest.raises(SettingError, match="a slave has an id above 0, a master has 0"):
        _ = load_broker_settings(None, texts, {}).is_slave


def test_slave_has_an_id_and_a_role() -> None:
    assert load_broker_settings(None, ["brokerRole=SLAVE", "brokerId=1"], {}).is_slave
    assert not load_broker_settings(None, [], {}).is_slave


@pytest.mark.parametrize(
    "text",
    [
        "listenPort=99999",
        "brokerName=a/b",
        "brokerName=",
        "brokerIP1=host example",
        "brokerIP1=10.0.0.256",
        "brokerIP1=0.0.0.0",
        "namesrvAddr=nonsense",
        "flushDiskType=SOMETIMES",
        "brokerRole=sync_master",
        "haMasterAddress=10.0.0.1",
        "haMembers=10.0.0.1/8",
        "haTransferBatchSize=4194304",
        "brokerId=-1",
        "longPollingEnable=yes",
        "maxMessageSize=99999999",
        "mappedFileSizeConsumeQueue=7",
    ],
)
def test_invalid_value_names_key_and_source(text: str) -> None:
    with pytest.raises(SettingError, match=f"{text.split('=')[0]}=.* from the command line"):
        load_broker_settings(None, [text], {})


def test_effective_settings_can_be_loaded(tmp_path: Path) -> None:
    settings = load_broker_settings(None, ["brokerName=mine", "deleteWhen=04;16"], {})
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={text}\n" for key, text in settings.effective().items()))
    again = load_broker_settings(file, [], {})
    assert again.effective() == settings.effective() and not again.complaints


def test_change_with_an_invalid_value_changes_nothing() -> None:
    settings = BrokerSettings()
    with pytest.raises(SettingError):
        settings.change({"maxMessageSize": "2048", "brokerName": "other"})
    assert settings[keys.MESSAGE_BYTES] == 4 * 1024 * 1024


def test_change_blocked_or_unsupported_key_refused() -> None:
    settings = load_broker_settings(None, ["configBlackList=maxMessageSize;traceOn"], {})
    with pytest.raises(SettingError, match="maxMessageSize cannot be changed while the broker runs"):
        settings.change({"maxMessageSize": "2048"})
    with pytest.raises(SettingError, match="aclEnable cannot be changed while the broker runs"):
        settings.change({"aclEnable": "false"})
    with pytest.raises(SettingError, match="enableSlaveActingMaster=true from the request: no slave can take over"):
        settings.change({"enableSlaveActingMaster": "true"})
    settings.change({"brokerPermission": "4"})
    assert settings[keys.BROKER_PERMISSION] == 4


def test_keys_unknown_to_java_are_marked_as_own() -> None:
    # Java reads the TLS keys too, from system properties and tls.properties.
    java_tls_keys = {key for key in TLS_SETTINGS if key.startswith("tls.")} - {"tls.client.checkHostName"}
    for key in BROKER_SETTINGS.keys() - JAVA_KEYS - java_tls_keys:
        assert "Orbitlog's own key" in BROKER_SETTINGS[key].help, key


def test_option_with_an_invalid_value_names_its_key() -> None:
    with pytest.raises(SettingError, match=r"bindAddress=999\.1 from the command line: '999\.1' is not an IP address"):
        BrokerSettings({}).with_texts({"bindAddress": "999.1"})


def test_effective_settings_mask_secrets() -> None:
    first = 'initAuthenticationUser={"username":"root-user","password":"hidden"}'
    inner = 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"hidden"}'
    settings = load_broker_settings(None, [first, inner], {})
    assert "hidden" not in str(settings.effective())
    assert settings.effective()["initAuthenticationUser"] == "***"
    assert load_broker_settings(None, [], {}).effective()["initAuthenticationUser"] == ""
