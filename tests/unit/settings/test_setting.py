"""Settings: their errors name key and source, and keep problem and advice apart."""

from __future__ import annotations

import copy
import pickle

import pytest

from orbitlog.settings.setting import AdvisedText, Setting, SettingError, number_between, split_assignment
from orbitlog.settings.store_settings import check_plain_path


def _checked(text: str) -> str:
    check_plain_path(text)
    return text


def test_advised_text_is_the_sentence_and_keeps_its_parts() -> None:
    text = AdvisedText("the port is taken", "set listenPort")
    assert text == "the port is taken; set listenPort" and (text.problem, text.advice) == (
        "the port is taken",
        "set listenPort",
    )
    longer = text.after("listenPort=1: ")
    assert (longer, longer.advice) == ("listenPort=1: the port is taken; set listenPort", "set listenPort")
    assert AdvisedText.of(text) is text
    plain = AdvisedText.of("a; b")
    assert (plain.problem, plain.advice) == ("a; b", "")


def test_setting_error_names_its_key_and_keeps_the_advice_of_the_parser() -> None:
    with pytest.raises(SettingError) as caught:
        Setting("storePathRootDir", _checked, "", "").check("~/store", "broker.conf")
    error = caught.value
    assert error.key == "storePathRootDir"
    assert error.sentence.advice == "write the full path"
    assert str(error) == f"{error.sentence.problem}; write the full path"
    assert str(error).startswith("storePathRootDir=~/store from broker.conf: '~/store' starts with ~")


def test_setting_error_without_advice_has_none() -> None:
    with pytest.raises(SettingError) as caught:
        Setting("listenPort", number_between(1, 65535), 1, "").check("0", "broker.conf")
    assert (caught.value.key, caught.value.sentence.advice) == ("listenPort", "")


def test_setting_error_survives_a_process_boundary() -> None:
    with pytest.raises(SettingError) as caught:
        split_assignment("no value")
    for error in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert (str(error), error.sentence.advice) == (str(caught.value), caught.value.sentence.advice)
