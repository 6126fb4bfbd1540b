"""Access control of one server: loads accounts and users, keeps the request guard current, and saves changes.

Files are compared every few seconds; a changed set is read as a whole, once it has stopped to change, and replaces the
policy. A set that is invalid keeps the policy in force and is reported once.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orbitlog.access.access_file import BadAccessFile, FileTooLarge, load_access_file, save_access_file
from orbitlog.access.access_model import Account
from orbitlog.access.access_settings import AccessOptions
from orbitlog.access.account_quotas import AccountQuotas
from orbitlog.access.credentials import Credentials
from orbitlog.access.failed_attempts import FailedAttempts
from orbitlog.access.plain_account_changes import ChangedFile
from orbitlog.access.plain_account_files import (
    FileMark,
    PlainAccounts,
    account_files,
    combined,
    load_plain_accounts,
    marks_of,
    save_plain_file,
)
from orbitlog.access.plain_accounts import BadAccounts
from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.access.request_needs import MessageTopic
from orbitlog.access.source_addresses import white_address
from orbitlog.access.user_records import SUPER, User
from orbitlog.access.user_table import UserTable
from orbitlog.errors import RequestRefused
from orbitlog.settings.atomic_file import create_directory
from orbitlog.wire.codes import ResponseCode

if TYPE_CHECKING:
    from orbitlog.access.audit_log import AuditLog

log = logging.getLogger(__name__)

T = TypeVar("T")
_NO_PLAIN_ACCOUNTS = PlainAccounts({}, {}, ())


def _monotonic_ms() -> int:
    """Return milliseconds of a clock that is never set."""
    return time.monotonic_ns() // 1_000_000


class AccessControl:
    """The accounts of one server, and the guard that its requests pass."""

    def __init__(
        self, options: AccessOptions, *, cluster: str = "DefaultCluster", message_topic: MessageTopic | None = None
    ) -> None:
        """Load everything; raise `BadAccounts` or `BadAccessFile` if a file is invalid."""
        self.options = options
        self.plain = _NO_PLAIN_ACCOUNTS
        self._users = UserTable()
        self._marks: tuple[FileMark, ...] | None = ()  # None if the files could not be searched
        self._seen: tuple[FileMark, ...] | None = None  # by the last check
        self._problem = ""  # why the files were not reloaded: a change would overwrite what an operator wrote there
        self._counter = 0
        self.inner_credentials = options.inner_credentials
        """How this server signs requests to others."""
        self._inner_account: dict[str, Account] = {}
        self._audit: AuditLog | None = None
        self._load()
        self.guard = RequestGuard(self._policy(), cluster=cluster)
        self.quotas = AccountQuotas(_monotonic_ms)
        self.quotas.on_topic_created = self._save_topic_owners
        self.failures = FailedAttempts(options.free_failures, _monotonic_ms)
        self._put_in_force()
        if message_topic is not None:
            self.guard.message_topic = message_topic

    @property
    def users(self) -> UserTable:
        """The users and policies of 2.0; change them by `change_users` only."""
        return self._users

    def create_inner_account(self) -> None:
        """Create an account for requests within this process, unless credentials for them are set; it is not saved."""
        if self.inner_credentials is None:
            self.inner_credentials = Credentials(f"inner-{secrets.token_hex(8)}", secrets.token_hex(32))
            name, secret = self.inner_credentials.access_key, self.inner_credentials.secret_key
            self._inner_account = {name: Account(name, secret, is_super=True)}
            self._put_in_force()

    def start_audit(self, path: Path, now_ms: Callable[[], int]) -> None:
        """Write refusals and administrative requests to a file from now on."""
        from orbitlog.access.audit_log import AuditLog

        create_directory(path.parent)
        self._audit = AuditLog(path, now_ms)
        self.guard.on_event = self._audit.write

    def close(self) -> None:
        """Close the audit log."""
        if self._audit is not None:
            self._audit.close()

    def check(self) -> bool:
        """Reload files that have changed, and not since the last call: another process may still write them."""
        try:
            marks = self._current_marks()
        except BadAccessFile:
            return self.reload()
        is_settled = marks == self._seen
        self._seen = marks
        return is_settled and self.reload()

    def reload(self) -> bool:
        """Read the files if one has changed; return whether the policy was replaced."""
        marks = None
        try:
            marks = self._current_marks()
            if marks == self._marks:
                return False
            self._load()
        except (BadAccounts, BadAccessFile) as error:
            self._marks = marks  # the next change of a file is the next attempt
            if self._problem != str(error):  # reported once
                self._problem = str(error)
                log.error("could not reload access control, the accounts in force stay: %s", error)
            return False
        self._problem = ""
        self._put_in_force()
        log.info("access control reloaded: %d accounts", len(self.guard.policy.accounts))
        return True

    def change_users(self, change: Callable[[UserTable], T]) -> T:
        """Apply a change to the users, save them, and put them in force; nothing changes if one of these fails."""
        self._reload_before_change()
        table = self._users.copy()
        result = change(table)
        self._save(table)
        self._put_in_force()
        return result

    def change_plain(self, change: Callable[[PlainAccounts], ChangedFile | None]) -> bool:
        """Apply a change to an account file, save it, and put it in force; return False if there is nothing to change.

        Nothing changes if one of these fails: raise `BadAccounts` if the result is invalid, `RequestRefused` if it
        cannot be saved.
        """
        self._reload_before_change()
        changed = change(self.plain)
        if changed is None:
            return False
        plain = combined({**self.plain.files, changed.path: changed.content})
        try:
            save_plain_file(changed.path, changed.content)
        except OSError as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"could not save {changed.path.name}: {error.strerror}"
            ) from None
        self.plain = plain
        self._marks = self._current_marks()
        self._put_in_force()
        return True

    def _reload_before_change(self) -> None:
        """Read what an operator or another server wrote: it must not be undone. Raise `RequestRefused` if invalid."""
        self.reload()
        if self._problem:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"accounts cannot be changed until their files are valid: {self._problem}"
            )

    def _save(self, table: UserTable) -> None:
        path = self.options.user_file
        try:
            save_access_file(path, table, self._counter + 1)
        except FileTooLarge as error:
            raise RequestRefused(ResponseCode.NO_PERMISSION, str(error)) from None
        except OSError as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"could not save users and policies: {error.strerror}"
            ) from None
        self._counter += 1
        self._users = table
        self._marks = self._current_marks()

    def create_first_users(self) -> None:
        """Create the users that settings name, as super users; one that exists keeps its password.

        Raise `BadAccessFile` if they cannot be saved.
        """
        if not self.options.checks_users:
            return
        inner = self.options.inner_credentials
        named = [self.options.first_user, None if inner is None else User(inner.access_key, inner.secret_key, SUPER)]
        table = self._users.copy()
        for user in named:
            if user is not None and user.username not in table.users:
                table.users[user.username] = User(user.username, user.password, SUPER)
        if table.users.keys() != self._users.users.keys():
            try:
                self._save(table)
            except RequestRefused as error:
                raise BadAccessFile(f"{self.options.user_file}: {error.remark}") from None
            self._put_in_force()
        if not self.guard.policy.accounts:
            log.warning("access control is on and there is no account: every request will be refused")

    def _paths(self) -> list[Path]:
        options = self.options
        plain = account_files(options.home) if options.checks_plain_accounts and options.home is not None else []
        return [*plain, *([options.user_file] if options.checks_users else [])]

    def _current_marks(self) -> tuple[FileMark, ...]:
        return marks_of(self._paths())

    def _load(self) -> None:
        options = self.options
        marks = self._current_marks()  # before reading: a change during it is found by the next comparison
        plain = self.plain
        if options.checks_plain_accounts and options.home is not None:
            for path, _, _, size in marks:
                # As 4.9.7: editors empty a file before they write it. A list without accounts is `accounts: []`.
                if not size and (before := plain.files.get(Path(path))) is not None and before.accounts:
                    raise BadAccessFile(f"{path} is empty")
            plain = load_plain_accounts(options.home)
            if self.plain.files and not plain.files:
                raise BadAccessFile(f"the account files in {options.home / 'conf'} were deleted")
        users = load_access_file(options.user_file) if options.checks_users else self._users
        if self._users.users and not options.user_file.exists():
            raise BadAccessFile(f"{options.user_file} was deleted")
        self.plain, self._users, self._marks = plain, users, marks

    def _put_in_force(self) -> None:
        """Replace the policy and the quotas by those of the accounts."""
        policy = self.guard.policy = self._policy()
        self.quotas.set_accounts(policy.accounts, self.options.default_limits)
        self.quotas.topic_owners = dict(self._users.topic_owners)

    def _save_topic_owners(self, owners: Mapping[str, str]) -> None:
        """Save who created a topic; accounts of 1.0 have no file for it, and start at none after a restart."""
        if self.options.checks_users:
            self.change_users(lambda table: setattr(table, "topic_owners", dict(owners)))

    def numbers(self) -> dict[str, int]:
        """Return counters for operators: refusals, slowed and closed attempts, and reached quotas by account."""
        return {
            "accessRefused": self.guard.refused_count,
            "accessFailuresDelayed": self.failures.delayed_count,
            "accessFailuresClosed": self.failures.closed_count,
            **{f"quotaReached_{name}": count for name, count in self.quotas.counters().items()},
        }

    def _policy(self) -> AccessPolicy:
        options = self.options
        return AccessPolicy(
            {**self.plain.accounts, **self._users.accounts(), **self._inner_account},
            tuple(white_address(address) for address in self.plain.global_white_addresses if address.strip()),
            is_authorizing=options.checks_policies or not options.checks_users,
            is_plain=options.checks_plain_accounts and not options.checks_users,
        )
