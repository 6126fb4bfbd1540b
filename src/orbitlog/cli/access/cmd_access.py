"""`orbitlog access`: manages the file with users and policies, imports accounts of 4.x, and explains decisions."""

from __future__ import annotations

from orbitlog.cli.lazy_group import LazyCommand, LazyGroup

COMMANDS: dict[str, LazyCommand] = {
    "user": LazyCommand("orbitlog.cli.access.access_user", "List, add, change and remove users."),
    "policy": LazyCommand("orbitlog.cli.access.access_policy", "List, add and remove policy entries of users."),
    "check": LazyCommand("orbitlog.cli.access.access_check", "Explain whether an account may do something."),
    "import": LazyCommand("orbitlog.cli.access.access_import", "Turn accounts of plain_acl.yml into users."),
    "tls": LazyCommand("orbitlog.cli.access.access_tls", "Create a CA and certificates for development."),
}

command = LazyGroup(
    "access",
    table=COMMANDS,
    help="""Manage users and policies of access control, and explain decisions.

    The commands change the file of a broker or name server on this machine; it need not run. A running one reads the
    file within five seconds. For others use the verbs of `orbitlog mqadmin`, such as createUser.""",
)
