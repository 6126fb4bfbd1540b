"""Names of users are distinguished from those of the system; see tests/integration/client for the commands."""

from __future__ import annotations

from orbitlog.cli.user_names import user_groups, user_rows


def test_user_groups_given_system_groups_leaves_them_out() -> None:
    assert user_groups(["billing", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_ONSAPI_PULL"]) == ["billing"]


def test_user_rows_given_system_topics_or_groups_leaves_them_out() -> None:
    kept = [{"topic": "Orders", "group": "billing"}, {"topic": "%RETRY%billing"}, {"level": 3, "pending": 1}]
    hidden = [{"topic": "SCHEDULE_TOPIC_XXXX"}, {"topic": "Orders", "group": "TOOLS_CONSUMER"}]
    assert user_rows([*hidden, *kept]) == kept
