"""Accounts of 1.0 over the wire: what tools of 4.x send, what takes effect at once, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

from orbitlog.access.credentials import Credentials
from orbitlog.access.plain_accounts import parse_plain_file
from orbitlog.wire.codes import ResponseCode
from tests.support.broker_desk import Desk, at_desk
from tests.support.secured_broker import ROOT, ask, secured, send

ADMIN, NEW = Credentials("operator", "secret-1"), Credentials("account-2", "secret-2")
START = "accounts: [{accessKey: operator, secretKey: secret-1, admin: true}]\n"


def home_in(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "conf" / "acl").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(START)
    return home


async def manage(desk: Desk, code: int, credentials: Credentials = ADMIN, **fields: str) -> tuple[int, str | None]:
    answer = await ask(desk, code, credentials, fields=fields)
    return answer.code, answer.remark


def test_account_takes_effect_at_once_and_is_written_for_the_next_start(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    path = home / "conf" / "plain_acl.yml"

    async def work(desk: Desk) -> None:
        assert (await send(desk, NEW)).code == ResponseCode.SYSTEM_ERROR
        fields = {"accessKey": "account-2", "secretKey": "secret-2", "admin": "false", "topicPerms": "Orders=PUB,T=SUB"}
        assert await manage(desk, 50, **fields) == (0, None)
        assert (await send(desk, NEW)).code == ResponseCode.SUCCESS
        assert (await manage(desk, 50, NEW, **fields))[0] == ResponseCode.SYSTEM_ERROR
        assert path.stat().st_mode & 0o777 == 0o600
        written = parse_plain_file(path.read_bytes(), "file")
        assert [account.access_key for account in written.accounts] == ["operator", "account-2"]
        assert written.accounts[1].topic_permissions == ("Orders=PUB", "T=SUB")
        assert written.version_counter == 1
        assert (await manage(desk, 51, accessKey="account-2"))[0] == 0
        assert (await send(desk, NEW)).code == ResponseCode.SYSTEM_ERROR
        code, remark = await manage(desk, 51, accessKey="account-2")
        assert (code, remark) == (
            210,
            "The accesskey[account-2] corresponding to accessConfig has been deleted failed.",
        )

    at_desk(tmp_path / "store", work, aclEnable="true", rocketmqHome=str(home))


def test_white_addresses_versions_and_accounts_without_secrets(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    path = home / "conf" / "plain_acl.yml"
    more = home / "conf" / "acl" / "more.yml"
    more.write_text("accounts: [{accessKey: account-2, secretKey: secret-2}]\n")

    async def work(desk: Desk) -> None:
        assert await manage(desk, 53, globalWhiteAddrs="10.0.0.*,10.1.0.1", aclFileFullPath="") == (0, None)
        assert (await manage(desk, 53, globalWhiteAddrs="10.2.0.1", aclFileFullPath=str(more)))[0] == 0
        for file in ("/etc/passwd", str(home / "conf" / "tools.yml"), "plain_acl.yml"):
            assert (await manage(desk, 53, globalWhiteAddrs="10.0.0.1", aclFileFullPath=file))[0] == 211
        assert (await manage(desk, 53, globalWhiteAddrs="host.name", aclFileFullPath=""))[0] == 211
        versions = (await ask(desk, 52, ADMIN)).ext_fields
        assert json.loads(versions["version"])["counter"] == 1
        assert {path: version["counter"] for path, version in json.loads(versions["allAclFileVersion"]).items()} == {
            str(path): 1,
            str(more): 1,
        }
        assert (versions["brokerName"], versions["brokerAddr"]) == (desk.broker.state.broker_name, desk.address)
        shown = await ask(desk, 54, ADMIN)
        content = json.loads(shown.body)
        assert content["globalWhiteAddrs"] == ["10.2.0.1", "10.0.0.*", "10.1.0.1"]
        assert [account["accessKey"] for account in content["plainAccessConfigs"]] == ["account-2", "operator"]
        assert b"secret-" not in shown.body

    at_desk(tmp_path / "store", work, aclEnable="true", rocketmqHome=str(home))


def test_invalid_or_unsaved_change_leaves_file_and_accounts(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    path = home / "conf" / "plain_acl.yml"

    async def work(desk: Desk) -> None:
        fields = {"accessKey": "account-2", "secretKey": "secret-2", "admin": "false"}
        code, remark = await manage(desk, 50, **{**fields, "secretKey": "short"})
        assert code == 209
        assert "length should longer than 6" in (remark or "")
        assert (await manage(desk, 50, **fields, whiteRemoteAddress="10.0.0.0/8"))[0] == 209
        assert (await manage(desk, 50, **fields, topicPerms="T=WHAT"))[0] == 209
        path.write_text("accounts: [")  # an operator who is still editing: the file must not be overwritten
        code, remark = await manage(desk, 50, **fields)
        assert code == ResponseCode.SYSTEM_ERROR
        assert "until their files are valid" in (remark or "")
        assert path.read_text() == "accounts: ["
        assert (await send(desk, NEW)).code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path / "store", work, aclEnable="true", rocketmqHome=str(home))


def test_link_to_the_file_stays(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    path, target = home / "conf" / "plain_acl.yml", tmp_path / "elsewhere.yml"
    path.replace(target)
    path.symlink_to(target)

    async def work(desk: Desk) -> None:
        assert (await manage(desk, 50, accessKey="account-2", secretKey="secret-2"))[0] == 0
        assert path.is_symlink()
        assert b"account-2" in target.read_bytes()

    at_desk(tmp_path / "store", work, aclEnable="true", rocketmqHome=str(home))


def test_broker_without_accounts_of_1_0_answers_with_a_sentence(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for code in range(50, 55):
            fields = {"accessKey": "account-2", "secretKey": "secret-2", "globalWhiteAddrs": "10.0.0.1"}
            answered, remark = await manage(desk, code, ROOT, **fields)
            assert answered == ResponseCode.SYSTEM_ERROR
            assert "set aclEnable=true" in (remark or "")

    secured(tmp_path, work)
