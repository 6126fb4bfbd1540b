"""Plain account handlers: manage accounts of ACL 1.0 for tools of 4.x; the request guard admits administrators only.

Secrets are never part of a response. Mirrors `AdminBrokerProcessor` for codes 50 to 54.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from orbitlog.access.plain_account_changes import (
    AccountChange,
    ChangedFile,
    delete_account,
    put_account,
    put_white_addresses,
)
from orbitlog.access.plain_account_files import DEFAULT_FILE, PlainAccounts
from orbitlog.access.plain_accounts import BadAccounts, PlainAccount, PlainFile
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.errors import RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.admin_headers import GlobalWhiteAddressesRequest, PlainAccountRequest, PlainVersionResponse
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl

# Response codes of 4.x; 5.x uses the numbers for something else.
UPDATE_FAILED, DELETE_FAILED, WHITE_ADDRESSES_FAILED = 209, 210, 211


class PlainAccountHandlers:
    """Serves the codes of accounts."""

    def __init__(self, state: BrokerState, access: AccessControl) -> None:
        self._state = state
        self._access = access

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.put_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.put_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.get_accounts,
        }

    def put_account(self, _: Connection, request: Command) -> Answer:
        header = PlainAccountRequest.from_ext_fields(request.ext_fields)
        change = AccountChange(
            header.access_key,
            header.secret_key or "",
            header.white_address,
            header.is_admin,
            header.default_topic_permission,
            header.default_group_permission,
            _parts(header.topic_permissions),
            _parts(header.group_permissions),
        )
        self._change(
            UPDATE_FAILED,
            lambda plain: put_account(plain.files, self._default, change, self._state.now_ms()),
        )
        return response_to(request, ResponseCode.SUCCESS)

    def delete_account(self, _: Connection, request: Command) -> Answer:
        name = PlainAccountRequest.from_ext_fields(request.ext_fields).access_key
        is_deleted = self._change(DELETE_FAILED, lambda plain: delete_account(plain.files, name, self._state.now_ms()))
        if not is_deleted:
            remark = f"The accesskey[{name[:255]}] corresponding to accessConfig has been deleted failed."
            return response_to(request, DELETE_FAILED, remark)
        return response_to(request, ResponseCode.SUCCESS)

    def put_white_addresses(self, _: Connection, request: Command) -> Answer:
        header = GlobalWhiteAddressesRequest.from_ext_fields(request.ext_fields)
        addresses = tuple(part.strip() for part in header.addresses.split(",") if part.strip())

        def change(plain: PlainAccounts) -> ChangedFile:
            # A peer names the file: only one that is in use may be replaced.
            path = self._default if not header.file else Path(header.file)
            if path != self._default and path not in plain.files:
                raise BadAccounts(f"{header.file} is not an account file of this broker")
            return put_white_addresses(plain.files, path, addresses, self._state.now_ms())

        self._change(WHITE_ADDRESSES_FAILED, change)
        return response_to(request, ResponseCode.SUCCESS)

    def get_versions(self, connection: Connection, request: Command) -> Answer:
        files = self._plain.files
        versions = {str(path): _version(content) for path, content in files.items()}
        state = self._state
        header = PlainVersionResponse(
            version=orjson.dumps(_version(files.get(self._default, PlainFile((), ())))).decode(),
            all_versions=orjson.dumps(versions).decode(),
            broker_name=state.broker_name,
            broker_address=state.address_for(connection),
            cluster_name=state.cluster_name,
        )
        return response_to(request, ResponseCode.SUCCESS, ext_fields=header.to_ext_fields())

    def get_accounts(self, _: Connection, request: Command) -> Answer:
        plain = self._plain
        accounts = [account for content in plain.files.values() for account in content.accounts]
        content = {
            "globalWhiteAddrs": list(plain.global_white_addresses),
            "plainAccessConfigs": list(map(_shown, accounts)),
        }
        return response_to(request, ResponseCode.SUCCESS, body=orjson.dumps(content))

    @property
    def _plain(self) -> PlainAccounts:
        if not self._access.options.checks_plain_accounts:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "accounts of plain_acl.yml are not in use here; set aclEnable=true"
            )
        return self._access.plain

    @property
    def _default(self) -> Path:
        home = self._access.options.home
        assert home is not None, "aclEnable without a home directory is refused at the start"
        return home / DEFAULT_FILE

    def _change(self, code: int, change: Callable[[PlainAccounts], ChangedFile | None]) -> bool:
        """Return whether something was changed; raise `RequestRefused` with `code` if the change is invalid."""
        _ = self._plain
        try:
            return self._access.change_plain(change)
        except BadAccounts as error:
            raise RequestRefused(code, str(error)) from None


def _parts(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _version(content: PlainFile) -> dict[str, int]:
    return {"counter": content.version_counter, "timestamp": content.version_timestamp_ms}


def _shown(account: PlainAccount) -> dict[str, object]:
    """Return an account as Java's tools read it, without its secret and empty values."""
    fields = {
        "accessKey": account.access_key,
        "admin": account.is_admin,
        "defaultGroupPerm": account.default_group_permission,
        "defaultTopicPerm": account.default_topic_permission,
        "groupPerms": list(account.group_permissions),
        "topicPerms": list(account.topic_permissions),
        "whiteRemoteAddress": account.white_address,
    }
    shown = {name: value for name, value in fields.items() if name == "admin" or value}
    return {**shown, "secretKey": ""}
