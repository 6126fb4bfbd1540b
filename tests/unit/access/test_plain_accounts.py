"""Accounts of `plain_acl.yml`: YAML 1.1 scalars, invalid accounts, translation into the model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.access.access_decision import decide
from orbitlog.access.access_model import Action, Need, ResourceKind
from orbitlog.access.plain_accounts import BadAccounts, account_of, parse_plain_file
from orbitlog.access.yaml_subset import TEXT_BYTES_MAX
from tests.support.work_counters import peak_bytes_of, steps_of

FILE = b"""
globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.1-9]
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"   # a comment
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC = SUB]
  groupPerms:
  - groupC=SUB
  - groupA=DENY
- accessKey: operator
  secretKey: 12345678
  whiteRemoteAddress: 10.0.0.*
  admin: true
dataVersion:
- {counter: 3, timestamp: 1700000000000}
"""


def plain(text, name=None):
    accounts = parse_plain_file(text, "f").accounts
    return next(account_of(account) for account in accounts if name in (None, account.access_key))


def allowed(account, kind, name, actions):
    return decide(account, (Need(kind, name, actions),), "10.0.0.9").is_allowed


TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET


def test_file_is_read_with_its_white_addresses_and_version():
    content = parse_plain_file(FILE, "f")

    assert content.global_white_addresses == ("10.10.103.*", "192.168.0.1-9")
    assert [account.access_key for account in content.accounts] == ["RocketMQ", "operator"]
    assert [account.secret_key for account in content.accounts] == ["12345678", "12345678"]
    assert (content.version_counter, content.version_timestamp_ms) == (3, 1700000000000)
    assert "12345678" not in repr(content)


@pytest.mark.parametrize(
    ("kind", "name", "actions", "expected"),
    [
        (TOPIC, "topicA", PUB, False),
        (TOPIC, "topicB", PUB, True),
        (TOPIC, "topicB", SUB, True),
        (TOPIC, "topicC", SUB, True),
        (TOPIC, "topicC", PUB, False),
        (TOPIC, "topicC", PUB | SUB | GET, True),
        (TOPIC, "other", SUB, False),
        (GROUP, "groupC", SUB, True),
        (GROUP, "groupA", SUB, False),
        (GROUP, "other", SUB, True),
        (CLUSTER, "c", GET, False),
        (TOPIC, "topicB", Action.CREATE, False),
    ],
)
def test_permissions_decide_as_in_1_0(kind, name, actions, expected):
    assert allowed(plain(FILE, "RocketMQ"), kind, name, actions) is expected


def test_explicit_permission_replaces_the_default_one():
    account = plain(
        b"accounts: [{accessKey: account1, secretKey: secret-1, defaultTopicPerm: SUB, topicPerms: [T=PUB]}]"
    )

    assert allowed(account, TOPIC, "T", PUB)
    assert not allowed(account, TOPIC, "T", SUB)
    assert allowed(account, TOPIC, "U", SUB)


def test_publisher_may_not_query_messages():
    account = plain(b"accounts: [{accessKey: account1, secretKey: secret-1, topicPerms: [T=PUB]}]")

    assert not allowed(account, TOPIC, "T", SUB | GET)


def test_star_in_a_permission_is_no_wildcard():
    account = plain(b'accounts: [{accessKey: account1, secretKey: secret-1, topicPerms: ["*=PUB"]}]')

    assert not allowed(account, TOPIC, "T", PUB)


def test_retry_topic_among_topics_is_its_group():
    account = plain(b'accounts: [{accessKey: account1, secretKey: secret-1, topicPerms: ["%RETRY%g=SUB"]}]')

    assert allowed(account, GROUP, "g", SUB)


def test_admin_without_permissions_is_a_super_user_and_with_some_manages_accounts():
    both = b"accounts: [{accessKey: account1, secretKey: secret-1, admin: yes, topicPerms: [T=PUB]}]"
    account = plain(both)

    assert plain(FILE, "operator").is_super
    assert not account.is_super
    assert account.manages_accounts
    assert allowed(account, CLUSTER, "c", Action.UPDATE)
    assert allowed(account, TOPIC, "T", Action.DELETE)
    assert allowed(account, TOPIC, "T", PUB)
    assert not allowed(account, TOPIC, "T", SUB)


@pytest.mark.parametrize("value", ["true", "yes", "on", "TRUE", '"true"', "1"])
def test_admin_is_true_for_the_words_of_yaml_1_1(value):
    account = plain(f"accounts: [{{accessKey: account1, secretKey: secret-1, admin: {value}}}]".encode())

    assert account.is_super


@pytest.mark.parametrize("secret", ["01234567", "12:30:45", "1234e10", "0x1234567", "2020-01-01", "1_000_000", "true"])
def test_unquoted_secret_that_yaml_reads_as_another_value_is_refused(secret):
    text = f"accounts: [{{accessKey: account1, secretKey: {secret}}}]".encode()

    with pytest.raises(BadAccounts, match="put it in quotes"):
        parse_plain_file(text, "conf/plain_acl.yml")
    quoted = text.replace(secret.encode(), b'"%b"' % secret.encode().ljust(7, b"x"))
    assert parse_plain_file(quoted, "f").accounts[0].secret_key == secret.ljust(7, "x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"accounts: [{accessKey: short, secretKey: secret-1}]", "at least 7 characters"),
        (b"accounts: [{accessKey: account1, secretKey: short}]", "at least 7 characters"),
        (b"accounts: [{accessKey: account1}]", "secretKey of account account1 is missing"),
        (b"accounts: [{accessKey: account1, secretKey: secret-1, topicPerms: [T]}]", "permission 'T'"),
        (b"accounts: [{accessKey: account1, secretKey: secret-1, topicPerms: [T=PUB=SUB]}]", "permission 'T=PUB=SUB'"),
        (b"accounts: [{accessKey: account1, secretKey: secret-1, topicPerm: [T=PUB]}]", "unknown key 'topicPerm'"),
        (b"accounts: [{accessKey: account1, secretKey: secret-1, whiteRemoteAddress: host}]", "neither an IPv4"),
        (b"globalWhiteRemoteAddresses: [*]", "alias"),
        (b"globalWhiteRemoteAddresses: 10.0.0.1", "is not a list"),
        (b"account: []", "unknown key 'account'"),
        (b"- 1", "is not a mapping"),
        (b"accounts: {a: 1}", "accounts is not a list"),
        (b"a: &x 1", "anchors"),
        (b"a: !!python/object:os.system 1", "tags"),
        (b"[" * 100, "nested deeper"),
        (b"[" * 20 + b"]" * 20, "nested"),
        (b"a: 1\na: 2", "given twice"),
        (b"--- 1\n--- 2", "more than one"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"a: \x00", "not valid YAML"),
    ],
)
def test_invalid_file_is_refused_with_its_name(text, problem):
    with pytest.raises(BadAccounts, match=r"^conf/plain_acl.yml: ") as refused:
        parse_plain_file(text, "conf/plain_acl.yml")

    assert problem in str(refused.value)
    assert "secret-1" not in str(refused.value)


def test_empty_file_has_no_accounts():
    assert parse_plain_file(b"", "f").accounts == ()
    assert parse_plain_file(b"accounts:\n", "f").accounts == ()


@given(st.binary(max_size=300) | st.text("ab:-[]{}*&!|>'\"#,=% \n\t0", max_size=200).map(str.encode))
def test_fuzzed_file_is_decoded_or_refused(raw):
    try:
        parse_plain_file(raw, "f")
    except BadAccounts:
        pass


@given(st.data())
def test_fuzzed_change_of_a_valid_file_is_decoded_or_refused(data):
    raw = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(raw) - 1))
        raw[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    try:
        content = parse_plain_file(bytes(raw), "f")
    except BadAccounts as error:
        assert "12345678" not in str(error)
    else:
        for account in content.accounts:
            assert account.access_key and account.secret_key


def test_secret_of_very_many_digits_is_read_as_it_is_written():
    text = b"accounts: [{accessKey: account1, secretKey: %b}]" % (b"1" * 5_000)

    assert parse_plain_file(text, "f").accounts[0].secret_key == "1" * 5_000


@pytest.mark.parametrize("piece", [b"[", b"- ", b"? ", b"{a: ", b"a: b: "])
def test_nested_text_is_refused_before_it_is_read_to_its_end(piece):
    text = piece * (TEXT_BYTES_MAX // len(piece))

    def refused():
        with pytest.raises(BadAccounts):
            parse_plain_file(text, "f")

    refused()
    assert peak_bytes_of(refused) < 1024 * 1024
    assert steps_of(refused) < 10_000
