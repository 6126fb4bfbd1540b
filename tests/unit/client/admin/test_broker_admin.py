"""Settings and attributes as brokers read and write them."""

from __future__ import annotations

import pytest

from orbitlog.client.admin.broker_admin import encode_settings, parse_attributes, parse_settings
from orbitlog.errors import ClientError


def test_settings_there_and_back() -> None:
    settings = {"brokerName": "broker-a", "storePathRootDir": "C:=x", "empty": ""}
    assert parse_settings(encode_settings(settings)) == settings
    assert parse_settings(b"#a comment\nkey=value\r\n\nnonsense\n\xff=1\n") == {"key": "value", "\ufffd": "1"}


@pytest.mark.parametrize("settings", [{"": "x"}, {"a=b": "x"}, {"a": "x\nbrokerName=other"}, {"a\r": "x"}])
def test_a_value_cannot_smuggle_in_another_setting(settings: dict[str, str]) -> None:
    with pytest.raises(ClientError, match="is not a valid setting"):
        encode_settings(settings)


def test_changes_of_attributes() -> None:
    assert parse_attributes("+message.type=FIFO, -old") == {"+message.type": "FIFO", "-old": ""}
    for text in ("", "a=b", "+", "+a=1,+a=2"):
        with pytest.raises(ClientError, match="is not a valid attribute change"):
            parse_attributes(text)
