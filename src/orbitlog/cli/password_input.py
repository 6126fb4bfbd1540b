"""Passwords of new users: typed twice at a prompt, or one line of standard input."""

from __future__ import annotations

import sys

import click

from orbitlog.cli.main import WrongUse


def read_password(*, from_input: bool) -> str:
    """Return a password; raise `WrongUse` if a prompt is needed and standard input is not a terminal."""
    if from_input:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise WrongUse("standard input is not a terminal; give --password-stdin and write the password there")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
