"""Setting review: the effect of a key of Java's `broker.conf` or `namesrv.conf` with its value.

Reviewed are keys that no settings table reads. `KeyTables` holds the classes of one of the two files.

Values are compared as Java reads them: booleans without case, anything else than `true` being false; numbers as
numbers; texts exactly. A key that no version knows but that resembles a protecting one is refused, though Java ignores
it: the line was written to protect something, and protects nothing. The same holds for a key whose name contains a word
of access control, such as `tlsEnable` or `ip.whitelist`, unless its value switches something off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from orbitlog.settings.java_keys import ABSENT, COMPUTED, JAVA_KEYS, JavaKey
from orbitlog.settings.secret_settings import shown_value
from orbitlog.settings.setting import AdvisedText
from orbitlog.settings.setting_classes import (
    ACCESS_SWITCHES,
    BEHAVIOUR,
    HARMLESS_VALUES,
    ORBITLOG_KEYS,
    PLACE_KEYS,
    PROTECTING_KEYS,
    SAFETY,
    STORE_KEYS,
)

_SIMILAR = 0.8
_NEARLY_THE_SAME = 0.9
_TLS_PREFIX = "tls."
_TLS_OFF = frozenset(("false", "disabled", "permissive", ""))
_UP_TO = "<="
_OFF = _TLS_OFF | {"off", "no", "none", "disable", "0"}
_PROTECTING_WORDS = ("dledger", "dleger", "rocksdb", "replica", "storepath")
# Words of access control. `acl` and `cert` count only where a word of the key begins or ends, not in `oracle`.
_ACCESS_WORDS = re.compile(r"auth|tls|ssl|sasl|password|credential|encrypt|\bacl|acl\b|\bcert")
_ACCESS_COMPOUNDS = re.compile(r"accesskey|secretkey|keystore|truststore|(?:white|black|allow|deny)list")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class SettingClass(Enum):
    """The effect of a setting that no table reads on the command that it was given to."""

    HARMLESS = "no effect"
    BEHAVIOUR = "changes behaviour"
    SAFETY = "refused"
    UNKNOWN = "unknown"


_NO_SENTENCE = AdvisedText("")


class Verdict(NamedTuple):
    """The class of one setting with its value, a sentence unless it is harmless, and the Java key that is meant."""

    kind: SettingClass
    sentence: AdvisedText = _NO_SENTENCE
    meant: str = ""


class KeyTables(NamedTuple):
    """The keys that Java reads from one file, and their classes."""

    server: str
    file_name: str
    java_keys: Mapping[str, JavaKey]
    safety: Mapping[str, AdvisedText]
    behaviour: Mapping[str, str]
    harmless_values: Mapping[str, tuple[str, ...]]
    protecting: tuple[str, ...]


BROKER_KEYS = KeyTables("broker", "broker.conf", JAVA_KEYS, SAFETY, BEHAVIOUR, HARMLESS_VALUES, PROTECTING_KEYS)
_HARMLESS = Verdict(SettingClass.HARMLESS)
_WITHOUT_REFUSAL = {kind: kind for kind in SettingClass} | {SettingClass.SAFETY: SettingClass.UNKNOWN}


def review_setting(
    key: str, text: str, source: str, *, read_keys: Iterable[str] = (), tables: KeyTables = BROKER_KEYS
) -> Verdict:
    """Return the class of a setting that no table reads; `read_keys` are the keys that the tables read."""
    given = f"{key}={shown_value(key, text)} from {source}"
    start = f"{given}: "
    if key not in tables.java_keys:
        return _review_unknown(key, text, given, read_keys, tables)
    if key in tables.safety and not is_harmless(key, text, tables):
        return Verdict(SettingClass.SAFETY, tables.safety[key].after(start), key)
    if key in tables.behaviour and not is_harmless(key, text, tables):
        return Verdict(SettingClass.BEHAVIOUR, AdvisedText.of(tables.behaviour[key]).after(start), key)
    if key in tables.safety and tables.java_keys[key].type == "boolean" and text.lower() not in ("true", "false"):
        problem = AdvisedText("the value is neither true nor false; Java reads it as false")
        return Verdict(SettingClass.BEHAVIOUR, problem.after(start))
    return _HARMLESS


def review_for_store(key: str, text: str, source: str) -> Verdict:
    """Return the class of a setting for a command that reads the files of a store: most are harmless there."""
    if key in ORBITLOG_KEYS:
        return _HARMLESS
    verdict = review_setting(key, text, source)
    if key not in JAVA_KEYS:
        return verdict if verdict.meant in PLACE_KEYS else verdict._replace(kind=_WITHOUT_REFUSAL[verdict.kind])
    if verdict.meant in PLACE_KEYS:
        return verdict
    return verdict._replace(kind=SettingClass.BEHAVIOUR) if verdict.meant in STORE_KEYS else _HARMLESS


def is_harmless(key: str, text: str, tables: KeyTables = BROKER_KEYS) -> bool:
    """Return whether a Java key with this value asks for nothing that Java's default does not."""
    java_type = tables.java_keys[key].type
    return any(_matches(java_type, text, value) for value in harmless_values(key, tables))


def harmless_values(key: str, tables: KeyTables = BROKER_KEYS) -> tuple[str, ...]:
    """Return the values of a Java key that change nothing; `<=1` stands for every number up to 1."""
    defaults = dict.fromkeys(tables.java_keys[key].defaults)
    return tables.harmless_values.get(key) or tuple(value for value in defaults if value not in (ABSENT, COMPUTED))


def _matches(java_type: str, text: str, harmless: str) -> bool:
    if java_type == "boolean":
        return (text.lower() == "true") == (harmless == "true")
    if java_type == "string":
        return text == harmless
    try:
        number = float(text)
    except ValueError:
        return False
    return number <= float(harmless[len(_UP_TO) :]) if harmless.startswith(_UP_TO) else number == float(harmless)


def _review_unknown(key: str, text: str, given: str, read_keys: Iterable[str], tables: KeyTables) -> Verdict:
    if key.startswith(_TLS_PREFIX) and text.lower() not in _TLS_OFF:
        problem = f"{given}: no TLS setting has this name, so it protects nothing"
        return Verdict(SettingClass.SAFETY, AdvisedText(problem, "remove this line"))
    problem = f"{given}: no {tables.server} reads this key, so it protects nothing"
    protecting = _similar(key, (*tables.protecting, *tables.safety), _NEARLY_THE_SAME, 1)
    if protecting and not _switches_off(protecting[0], text, tables):
        meant = f"write {protecting[0]} instead" if protecting[0] in tables.protecting else f"{protecting[0]} is meant"
        return Verdict(SettingClass.SAFETY, AdvisedText(problem, f"{meant}, or remove this line"), protecting[0])
    if _concerns_access(key) and text.lower() not in _OFF:
        advice = "remove this line, or write a key of docs/reference/settings.md"
        return Verdict(SettingClass.SAFETY, AdvisedText(problem, advice))
    similar = _similar(key, (*read_keys, *tables.java_keys), _SIMILAR, 2)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
    ignored = ", Java ignores it as well" if any(word in key.lower() for word in _PROTECTING_WORDS) else ""
    return Verdict(SettingClass.UNKNOWN, AdvisedText(f"{given} is unknown{ignored}{hint}"))


def _concerns_access(key: str) -> bool:
    """Return whether the name of a key contains a word of access control."""
    words = " ".join(_WORDS.findall(key)).lower()
    return _ACCESS_WORDS.search(words) is not None or _ACCESS_COMPOUNDS.search(_letters(key)) is not None


def _switches_off(key: str, text: str, tables: KeyTables) -> bool:
    """Return whether a value given under a name like that of a protecting key states that nothing is protected."""
    java_key = tables.java_keys.get(key)
    if key in ACCESS_SWITCHES or (java_key is not None and java_key.type == "boolean"):
        return text.lower() in _OFF  # `yes` is false for Java, but was not written to switch something off
    return key in tables.safety and is_harmless(key, text, tables)


def _similar(key: str, candidates: Iterable[str], cutoff: float, count: int) -> list[str]:
    import difflib  # needed for mistyped keys only

    by_letters = {_letters(candidate): candidate for candidate in candidates}
    return [by_letters[match] for match in difflib.get_close_matches(_letters(key), by_letters, n=count, cutoff=cutoff)]


def _letters(key: str) -> str:
    return "".join(letter for letter in key.lower() if letter.isalnum())
