"""Verdicts on single settings: whether the broker reads, ignores or refuses each key that was given, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orbitlog.broker.runtime.broker_settings import (
    ADVERTISED_ADDRESS,
    BIND_ADDRESS,
    BROKER_ID,
    BROKER_SETTINGS,
    NAME_SERVERS,
    STORE_ROOT,
    load_broker_settings,
)
from orbitlog.broker.runtime.replication_settings import (
    ALL_ACKNOWLEDGE,
    BROKER_ROLE,
    CONTROLLER_ADDRESSES,
    CONTROLLER_MODE,
    COORDINATOR,
    HA_MEMBERS,
    MEMBER_ID,
    MIN_IN_SYNC_CONTROLLED,
)
from orbitlog.settings.setting import AdvisedText, SettingError
from orbitlog.settings.store_settings import SETTINGS

READ, WRONG, REFUSED = "set", "wrong", "refused"
_SOURCE = " from the command line"
_ROLE_KEYS = (BROKER_ROLE.key, BROKER_ID.key)
_GROUP_KEYS = tuple(setting.key for setting in (COORDINATOR, MEMBER_ID, BIND_ADDRESS, ADVERTISED_ADDRESS, HA_MEMBERS))
_CONTROLLER_KEYS = tuple(
    setting.key for setting in (CONTROLLER_MODE, CONTROLLER_ADDRESSES, MIN_IN_SYNC_CONTROLLED, ALL_ACKNOWLEDGE)
)


class SettingVerdict(NamedTuple):
    """One key: `set`, `wrong`, or the value of a `SettingClass`; the sentence is that of the broker's start."""

    key: str
    finding: str
    sentence: AdvisedText | None = None


def judge_settings(texts: Mapping[str, str], source: str = "") -> Iterator[SettingVerdict]:
    """Yield a verdict for each setting; `source` is named in the sentences if it is given."""
    for key in texts:
        finding, sentence = _judged(key, texts)
        origin = f" from {source}" if source else ""
        if sentence is not None:
            sentence = AdvisedText(sentence.problem.replace(_SOURCE, origin), sentence.advice)
        yield SettingVerdict(key, finding, sentence)


def _judged(key: str, texts: Mapping[str, str]) -> tuple[str, AdvisedText | None]:
    """Return the finding on one key, beside the others that a verdict may depend on."""
    is_read = key in SETTINGS or key in BROKER_SETTINGS
    beside: tuple[str, ...] = () if is_read else (STORE_ROOT.key, NAME_SERVERS.key)
    if key in _ROLE_KEYS:
        beside = _ROLE_KEYS
    elif key == COORDINATOR.key:
        beside = _GROUP_KEYS
    elif key in _CONTROLLER_KEYS:
        beside = (*_CONTROLLER_KEYS, *_GROUP_KEYS[1:])
    names = dict.fromkeys((*beside, key))
    try:
        settings = load_broker_settings(None, [f"{name}={texts[name]}" for name in names if name in texts], {})
    except SettingError as error:
        return (WRONG if is_read else REFUSED), error.sentence
    if not settings.complaints:
        return READ, None
    complaint = settings.complaints[0]
    return complaint.kind.value, complaint.sentence or None
