"""Verbs about users, policies and accounts, with their flags."""

from __future__ import annotations

from functools import partial

from orbitlog.cli.mqadmin.verb_flags import Flag
from orbitlog.cli.mqadmin.verb_record import BROKER_OR, OR_CLUSTER, Verb, need

_SUBJECT = need("s", "subject", "the subject: User:name")
_USERNAME = need("u", "username", "the user")


_AT_BROKER = (BROKER_OR, OR_CLUSTER)
_BETWEEN = (need("f", "fromBroker", "broker to copy from"), need("t", "toBroker", "broker to copy to"))


def _verb(module: str, name: str, help_text: str, *flags: Flag, at: tuple[Flag, ...] = _AT_BROKER) -> Verb:
    function = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return Verb(name, help_text, f"{module}:{function}", "-", (*at, *flags))


_access = partial(_verb, "orbitlog.cli.mqadmin.mq_access")
_plain = partial(_verb, "orbitlog.cli.mqadmin.mq_plain_accounts")

_POLICY = (
    _SUBJECT,
    need("r", "resource", "resources, separated by commas: Topic:name,Group:*"),
    need("a", "actions", "actions, separated by commas: Pub,Sub"),
    need("d", "decision", "Allow or Deny"),
    Flag("i", "sourceIp", "addresses or networks, separated by commas"),
)
_PASSWORD = Flag("p", "password", "the password")
_TYPE = Flag("t", "userType", "Super or Normal")
_USERS = (
    _access("createUser", "Create a user.", _USERNAME, need("p", "password", "the password"), _TYPE),
    _access(
        *("updateUser", "Change the password, type or status of a user.", _USERNAME, _PASSWORD, _TYPE),
        Flag("s", "userStatus", "enable or disable"),
    ),
    _access("deleteUser", "Delete a user and its policies.", _USERNAME),
    _access("getUser", "Show a user.", _USERNAME),
    _access("listUser", "List users.", Flag("f", "filter", "only names that contain this text")),
    _access("createAcl", "Add entries to the policy of a user.", *_POLICY),
    _access("updateAcl", "Add or replace entries of the policy of a user.", *_POLICY),
    _access(
        *("deleteAcl", "Delete the policies of a user, or the entries of some resources.", _SUBJECT),
        Flag("r", "resource", "resources, separated by commas"),
    ),
    _access("getAcl", "Show the policies of a user.", _SUBJECT),
    _access(
        *("listAcl", "List policies.", Flag("s", "subject", "only subjects that contain this text")),
        Flag("r", "resource", "only resources that contain this text"),
    ),
    _access(
        *("copyUser", "Copy users from one broker to another.", Flag("u", "usernames", "only these users")),
        at=_BETWEEN,
    ),
    _access(
        *("copyAcl", "Copy policies from one broker to another.", Flag("s", "subjects", "only these subjects")),
        at=_BETWEEN,
    ),
)

_ACCESS_KEY = need("a", "accessKey", "the account")
_PLAIN_ACCOUNTS = (
    _plain(
        *("updateAclConfig", "Create or change an account of plain_acl.yml (4.x).", _ACCESS_KEY),
        need("s", "secretKey", "its secret, at least 7 characters"),
        Flag("w", "whiteRemoteAddress", "address that needs no signature"),
        Flag("i", "defaultTopicPerm", "permission on other topics: PUB, SUB, PUB|SUB or DENY"),
        Flag("u", "defaultGroupPerm", "permission on other groups"),
        Flag("t", "topicPerms", "permissions, separated by commas: topicA=DENY,topicD=SUB"),
        Flag("g", "groupPerms", "permissions, separated by commas: groupA=DENY,groupD=SUB"),
        Flag("m", "admin", "whether it administers the broker: true or false"),
    ),
    _plain("deleteAclConfig", "Delete an account of plain_acl.yml (4.x).", _ACCESS_KEY),
    _plain("clusterAclConfigVersion", "Show the versions of the account files (4.x)."),
    _plain(
        *("updateGlobalWhiteAddr", "Replace the addresses that need no credentials (4.x)."),
        need("g", "globalWhiteRemoteAddresses", "addresses, separated by commas: 10.10.103.*,192.168.0.1"),
        Flag("p", "aclFileFullPath", "path of the account file; else the default one"),
    ),
    _plain("getAclConfig", "Show the accounts, without secrets (4.x)."),
)
ACCESS_VERBS = (*_USERS, *_PLAIN_ACCOUNTS)
