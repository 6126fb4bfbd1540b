"""Access control of a server: files found and reloaded, first users, changes saved before they are in force."""

import os

import pytest

from orbitlog.access.access_control import AccessControl
from orbitlog.access.access_file import BadAccessFile, load_access_file
from orbitlog.access.access_settings import ACCESS_SETTINGS, access_options
from orbitlog.access.plain_accounts import BadAccounts
from orbitlog.access.request_signature import signature_of
from orbitlog.errors import RequestRefused
from orbitlog.settings.setting import SettingError


def options(tmp_path, **texts):
    values = {key: setting.default for key, setting in ACCESS_SETTINGS.items()}
    values |= {key: ACCESS_SETTINGS[key].check(text, "test") for key, text in texts.items()}
    return access_options(values, tmp_path / "config" / "access.json", {})


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    stamp = path.stat().st_mtime_ns + 1_000_000_000  # two writes within one tick of the clock must differ
    os.utime(path, ns=(stamp, stamp))


def account(name, **more):
    fields = "".join(f", {key}: {value}" for key, value in more.items())
    return f"{{accessKey: {name}, secretKey: secret-{name}{fields}}}"


def is_admitted(access, name, secret, code=25):
    fields = {"AccessKey": name}
    fields["Signature"] = signature_of(secret, fields, b"")
    return access.guard.is_admitted(code, fields, b"", "10.0.0.1")


@pytest.fixture
def plain(tmp_path):
    write(tmp_path / "conf" / "plain_acl.yml", f"accounts: [{account('account1', admin='true')}]")
    return AccessControl(options(tmp_path, aclEnable="true", rocketmqHome=str(tmp_path)))


def test_accounts_of_all_files_are_in_force(tmp_path, plain):
    write(tmp_path / "conf" / "acl" / "team" / "a.yaml", f"accounts: [{account('account2', admin='true')}]")
    write(tmp_path / "conf" / "acl" / "tools.yml", "accessKey: ignored")

    assert plain.reload()
    assert is_admitted(plain, "account1", "secret-account1")
    assert is_admitted(plain, "account2", "secret-account2")
    assert not is_admitted(plain, "account2", "secret-account1")
    assert not plain.reload()


def test_removed_account_and_white_address_end_with_the_reload(tmp_path, plain):
    path = tmp_path / "conf" / "plain_acl.yml"
    write(path, f'globalWhiteRemoteAddresses: ["*"]\naccounts: [{account("account3", admin="true")}]')
    plain.reload()
    assert plain.guard.is_admitted(26, {}, b"", "10.0.0.1")
    write(path, f"accounts: [{account('account1', admin='true')}]")
    plain.reload()

    assert not is_admitted(plain, "account3", "secret-account3")
    assert not plain.guard.is_admitted(26, {}, b"", "10.0.0.1")


def test_invalid_file_keeps_the_accounts_in_force_and_is_reported_once(tmp_path, plain, caplog):
    write(tmp_path / "conf" / "plain_acl.yml", "accounts: [{accessKey: x}]")

    assert not plain.reload()
    assert not plain.reload()
    assert is_admitted(plain, "account1", "secret-account1")
    assert len(caplog.records) == 1
    assert "plain_acl.yml" in caplog.text


def test_file_that_an_editor_emptied_keeps_the_accounts_in_force(tmp_path, plain, caplog):
    path = tmp_path / "conf" / "plain_acl.yml"
    write(path, "")

    assert not plain.reload()
    assert is_admitted(plain, "account1", "secret-account1")
    assert "plain_acl.yml is empty" in caplog.text
    write(path, "accounts: []")
    assert plain.reload()
    assert not is_admitted(plain, "account1", "secret-account1")


def test_half_written_file_is_not_read_before_it_has_settled(tmp_path, plain):
    path = tmp_path / "conf" / "plain_acl.yml"
    write(path, "accounts:\n")  # valid, but without the accounts that follow
    assert not plain.check()
    assert is_admitted(plain, "account1", "secret-account1")
    write(path, f"accounts:\n- {account('account1', admin='true')}\n- {account('account2', admin='true')}\n")
    assert not plain.check()
    assert plain.check()
    assert is_admitted(plain, "account2", "secret-account2")
    assert not plain.check()


def test_file_that_was_empty_at_the_start_has_no_accounts(tmp_path):
    write(tmp_path / "conf" / "plain_acl.yml", "")  # Java creates it so
    access = AccessControl(options(tmp_path, aclEnable="true", rocketmqHome=str(tmp_path)))
    assert access.guard.policy.accounts == {}


def test_deleted_account_files_keep_the_accounts_in_force(tmp_path, plain, caplog):
    path = tmp_path / "conf" / "plain_acl.yml"
    path.unlink()  # as an editor may do for a moment

    assert not plain.reload()
    assert is_admitted(plain, "account1", "secret-account1")
    assert "were deleted" in caplog.text
    write(path, f"accounts: [{account('account2', admin='true')}]")
    assert plain.reload()
    assert not is_admitted(plain, "account1", "secret-account1")


def test_directory_that_cannot_be_searched_keeps_the_accounts_and_is_reported_once(
    tmp_path, plain, caplog, monkeypatch
):
    write(tmp_path / "conf" / "acl" / "team" / "a.yml", f"accounts: [{account('account2', admin='true')}]")
    closed = OSError(13, "Permission denied", "conf/acl/team")
    with monkeypatch.context() as patched:
        patched.setattr(os, "walk", lambda _, onerror: onerror(closed))
        assert not plain.reload()
        assert not plain.reload()
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "could not search conf/acl/team: Permission denied"
    ]
    assert is_admitted(plain, "account1", "secret-account1")
    assert plain.reload()
    assert is_admitted(plain, "account2", "secret-account2")


def test_files_that_kubernetes_mounts_as_links_are_found_once(tmp_path, plain):
    directory = tmp_path / "conf" / "acl"
    write(directory / "..2026_01_01" / "a.yml", f"accounts: [{account('account2', admin='true')}]")
    (directory / "..data").symlink_to("..2026_01_01")
    (directory / "a.yml").symlink_to("..data/a.yml")

    assert plain.reload()
    assert is_admitted(plain, "account2", "secret-account2")


def test_account_in_two_files_is_refused_with_both_names(tmp_path):
    for name in ("a.yml", "b.yml"):
        write(tmp_path / "conf" / "acl" / name, f"accounts: [{account('account1')}]")

    with pytest.raises(BadAccounts, match=r"a\.yml and in .*b\.yml"):
        AccessControl(options(tmp_path, aclEnable="true", rocketmqHome=str(tmp_path)))


FIRST = '{"username":"root-user","password":"p1"}'
INNER = '{"accessKey":"inner","secretKey":"p2"}'


def test_first_users_are_created_as_super_users_and_never_changed(tmp_path):
    given = {"initAuthenticationUser": FIRST, "innerClientAuthenticationCredentials": INNER}
    AccessControl(options(tmp_path, authenticationEnabled="true", **given)).create_first_users()
    given["initAuthenticationUser"] = FIRST.replace("p1", "p9")
    access = AccessControl(options(tmp_path, authenticationEnabled="true", authorizationEnabled="true", **given))
    access.create_first_users()

    assert is_admitted(access, "root-user", "p1", 3005)
    assert is_admitted(access, "inner", "p2", 3005)
    assert not is_admitted(access, "root-user", "p9", 3005)


def test_change_is_saved_before_it_is_in_force(tmp_path, monkeypatch):
    access = AccessControl(options(tmp_path, authenticationEnabled="true", initAuthenticationUser=FIRST))
    access.create_first_users()
    access.change_users(lambda users: users.create_user("bob", {"password": "p3"}))
    assert is_admitted(access, "bob", "p3")
    assert "bob" in load_access_file(access.options.user_file).users
    assert not access.reload()

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orbitlog.access.access_control.save_access_file", fail)
    with pytest.raises(RequestRefused, match="No space left"):
        access.change_users(lambda users: users.delete_user("bob"))
    assert is_admitted(access, "bob", "p3")


def test_deleted_user_file_keeps_the_users_in_force(tmp_path, caplog):
    access = AccessControl(options(tmp_path, authenticationEnabled="true", initAuthenticationUser=FIRST))
    access.create_first_users()
    access.options.user_file.unlink()

    assert not access.reload()
    assert is_admitted(access, "root-user", "p1")
    assert "was deleted" in caplog.text


def test_user_file_that_others_can_read_refuses_the_start(tmp_path):
    access = AccessControl(options(tmp_path, authenticationEnabled="true", initAuthenticationUser=FIRST))
    access.create_first_users()
    access.options.user_file.chmod(0o644)

    with pytest.raises(BadAccessFile, match="chmod 600"):
        AccessControl(options(tmp_path, authenticationEnabled="true"))


def test_plain_accounts_are_authorized_beside_users_without_authorization(tmp_path):
    write(tmp_path / "conf" / "plain_acl.yml", f"accounts: [{account('account1')}]")
    both = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "authenticationEnabled": "true"}
    access = AccessControl(options(tmp_path, initAuthenticationUser=FIRST, **both))
    access.create_first_users()

    assert not is_admitted(access, "account1", "secret-account1")
    assert is_admitted(access, "root-user", "p1")


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"authorizationEnabled": "true"}, "authenticationEnabled=true"),
        ({"aclEnable": "true"}, "rocketmqHome"),
        ({"initAuthenticationUser": "{}"}, "initAuthenticationUser"),
        ({"innerClientAuthenticationCredentials": "secret-x"}, "innerClientAuthenticationCredentials"),
        ({"rocketmqHome": "relative"}, "absolute path"),
    ],
)
def test_contradicting_or_invalid_settings_are_refused_without_showing_secrets(tmp_path, texts, problem):
    with pytest.raises(SettingError) as refused:
        options(tmp_path, **texts)

    assert problem in str(refused.value)
    assert "secret-x" not in str(refused.value)


def test_name_server_without_access_file_is_refused():
    values = {key: setting.default for key, setting in ACCESS_SETTINGS.items()} | {"authenticationEnabled": True}

    with pytest.raises(SettingError, match="accessFile"):
        access_options(values, None, {})
