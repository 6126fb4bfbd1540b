"""Secret settings: values that are masked wherever settings are printed, logged or served."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"
# By the words in a key, so that a new or misspelt setting is masked without being listed; and Java's keys without one.
_SECRET = re.compile(r"pas+w|secret|token|credential|private_?key", re.IGNORECASE)
JAVA_SECRETS = frozenset(
    ("initAuthenticationUser", "objectStoreAccessKey", "socksProxyConfig", "metricsGrpcExporterHeader")
)


def is_secret(key: str) -> bool:
    """Return whether the value of a key must not be shown."""
    return key in JAVA_SECRETS or _SECRET.search(key) is not None


def shown_value(key: str, text: str) -> str:
    """Return a value as it may be shown; an empty one shows that nothing is set."""
    return MASK if text and is_secret(key) else text


def shown_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """Return settings with secret values masked."""
    return {key: shown_value(key, text) for key, text in texts.items()}
