"""Secrets: passwords, secret keys and signatures are in no answer, log line, audit line or error."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.access.access_file import BadAccessFile, load_access_file
from orbitlog.access.access_settings import SECRET_SETTINGS
from orbitlog.access.credentials import Credentials
from orbitlog.access.plain_account_files import load_plain_accounts
from orbitlog.access.plain_accounts import BadAccounts
from orbitlog.broker.runtime.broker_settings import load_broker_settings
from orbitlog.cli.main import cli
from orbitlog.settings.setting import SettingError
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import TIMEOUT_S, Desk
from tests.support.secured_broker import ROOT, ask, secured, send

SECRETS = ("root-secret", "inner-secret", "bob-secret", "eve-secret", "plain-secret", "key-secret", "token-secret")
INNER = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})
MANAGEMENT = (*range(50, 55), *range(3001, 3011))


def assert_no_secret(texts: Iterable[str], *more: str) -> None:
    for text in texts:
        assert [secret for secret in (*SECRETS, *more) if secret in text] == [], text[:2000]


def shown(answer: Command) -> str:
    return f"{answer.remark} {answer.ext_fields} {answer.body!r}"


def test_no_answer_log_or_file_has_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answers: list[str] = []
    signatures: list[str] = []

    async def tell(desk: Desk, command: Command, credentials: Credentials) -> None:
        credentials.sign(command)
        signatures.append(command.ext_fields["Signature"])
        answers.append(shown(await desk.client.invoke(desk.address, command, TIMEOUT_S)))

    async def work(desk: Desk) -> None:
        assert (await send(desk, ROOT)).code == 0
        bob = {"password": "bob-secret", "userType": "Super"}
        bodies = (bob, {**bob, "userStatus": 7}, {"password": ["bob-secret"]}, "bob-secret", {"password": ""})
        wrong = (Credentials("root-user", "eve-secret"), Credentials("eve-secret-user", "eve-secret", "token-secret"))
        for code in MANAGEMENT:
            for body in bodies:
                fields = {"username": "bob", "subject": "User:bob", "accessKey": "account", "secretKey": "plain-secret"}
                for credentials in (ROOT, *wrong):
                    raw = json.dumps(body).encode()
                    await tell(desk, Command(code, ext_fields=dict(fields), body=raw), credentials)
                    cut = Command(code, ext_fields={"secretKey": "plain-secret"}, body=raw[:-3])
                    await tell(desk, cut, credentials)
        for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO):
            answers.append(shown(await ask(desk, code, ROOT)))
        for text in ("initAuthenticationUser=root-secret", "tls.server.keyPassword=key-secret", "x=key-secret"):
            answers.append(shown(await ask(desk, RequestCode.UPDATE_BROKER_CONFIG, ROOT, body=text.encode())))

    with caplog.at_level(logging.DEBUG):
        settings = {"innerClientAuthenticationCredentials": INNER, "tls.server.keyPassword": "key-secret"}
        secured(tmp_path, work, **settings)
    # A user may choose a name that contains a secret: only those of the answers above count.
    names = [text.replace("eve-secret-user", "") for text in (*answers, caplog.text)]
    assert_no_secret(names, *signatures)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("access.json")]
    logs = [path.read_text().replace("eve-secret-user", "") for path in files if path.suffix in (".log", ".json")]
    assert any('"refused"' in text for text in logs)
    assert_no_secret(logs, *signatures)
    own = (tmp_path / "config" / "access.json").read_text()
    assert "root-secret" in own and (tmp_path / "config" / "access.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        'initAuthenticationUser={"username":"a","password":"root-secret"',
        'initAuthenticationUser=["root-secret"]',
        'innerClientAuthenticationCredentials={"accessKey":"a","secretKey":7,"x":"inner-secret"}',
        'innerClientAuthenticationCredential={"accessKey":"a","secretKey":"inner-secret"}',
        "tls.server.keyPasword=key-secret",
    ],
)
def test_refused_setting_is_not_shown_with_its_secret(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        settings = load_broker_settings(None, [text], {})
        assert_no_secret(settings.effective().values())
        raise SettingError(" ".join(filter(None, (complaint.sentence for complaint in settings.complaints))))
    assert_no_secret([str(refused.value), repr(refused.value)])


def test_printed_settings_mask_secrets() -> None:
    texts = [f"initAuthenticationUser={json.dumps({'username': 'a', 'password': 'root-secret'})}"]
    texts += [f"innerClientAuthenticationCredentials={INNER}", "tls.server.keyPassword=key-secret"]
    for command in ("up", "broker", "nameserver"):
        words = [word for text in texts for word in ("--set", text)]
        result = CliRunner().invoke(cli, [command, *words, "--print-settings"])
        assert result.exit_code == 0, result.output
        assert all(f"{key}=***" in result.output for key in SECRET_SETTINGS)
        assert_no_secret([result.output])


BAD_FILES = (
    '{"users":[{"username":"bob","password":"bob-secret","userType":"King"}]}',
    '{"users":[{"username":"bob","password":["bob-secret"]}]}',
    '{"users":{"bob-secret":1}}',
    '{"users":[{"username":"bob","password":"bob-secret"},{"username":"bob","password":"eve-secret"}]}',
    '{"users":[{"username":"bob","password":"bob-secret"',
)
BAD_YAML = (
    "accounts:\n- {accessKey: account-1, secretKey: plain-secret, whiteRemoteAddress: nowhere}\n",
    "accounts:\n- {accessKey: acc, secretKey: plain-secret}\n",
    "accounts:\n- {accessKey: account-1, secretKey: [plain-secret]}\n",
    "accounts:\n- {accessKey: account-1, secretKey: plain-secret, topicPerms: [plain]}\n",
    "accounts:\n- {accessKey: account-1, secretKey: plain-secret}\n- {accessKey: account-1, secretKey: key-secret}\n",
    "accounts:\n- {accessKey: account-1, secretKey: plain-secret\n",
    "accounts:\n- accessKey: account-1\n  secretKey: 'plain-secret\n",
)


@pytest.mark.parametrize("text", BAD_FILES)
def test_invalid_user_file_is_reported_without_its_secrets(text: str, tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadAccessFile) as error:
        load_access_file(path)
    assert_no_secret([str(error.value)])


@pytest.mark.parametrize("text", BAD_YAML)
def test_invalid_account_file_is_reported_without_its_secrets(text: str, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(text)
    with pytest.raises(BadAccounts) as error:
        load_plain_accounts(tmp_path)
    assert_no_secret([str(error.value)])
