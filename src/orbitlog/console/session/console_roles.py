"""Roles of console users, each with the rights of those below it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """What a visitor may do. `NONE` may only sign in."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


ROLE_WORDS = ("viewer", "operator", "admin")


def role_of(word: str) -> Role:
    """Return the role of that name; raise `KeyError` for another word."""
    if word not in ROLE_WORDS:
        raise KeyError(word)
    return Role[word.upper()]


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request: name, role, and the CSRF token of the session, if it has one."""

    name: str
    role: Role
    csrf_token: str = ""
    session_id: str = ""
