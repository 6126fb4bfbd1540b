"""The scenarios that matter most, with an official Java client at our broker alone: the part that `make test` runs.

The same functions run at Apache's brokers, and many more with them, in `make interop`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.interop import test_pulling, test_push_consumers, test_restarts, test_sending
from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import JAVA_497, clients_at_systems
from tests.interop.harness.packages import NotAvailable, apache_packages
from tests.interop.harness.systems import ORBITLOG

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("java-client")]

# Where Maven has not fetched the 28 MB by then, the rest of the suite does not wait for it.
MAVEN_SECONDS_MAX = 90

SCENARIOS: dict[str, Callable[[Client], None]] = {
    "sync": partial(test_sending.test_acknowledged_sends_are_where_the_answer_states, mode="sync"),
    "batch": test_sending.test_a_batch_is_stored_as_its_members,
    "selector": test_sending.test_a_selector_keeps_each_shard_in_one_queue_in_order,
    "first send": test_sending.test_a_topic_is_made_by_the_first_send,
    "megabyte": test_sending.test_a_compressed_megabyte_comes_back_whole,
    "too large": test_sending.test_a_message_too_large_is_refused_and_the_connection_lives,
    "push": test_push_consumers.test_a_message_reaches_a_waiting_consumer,
    "share": test_push_consumers.test_two_instances_share_and_one_takes_over,
    "broadcast": test_push_consumers.test_broadcasting_reaches_every_instance,
    "orderly": test_push_consumers.test_an_orderly_consumer_keeps_order_over_a_refusal,
    "retry": test_push_consumers.test_a_refused_message_comes_back_as_the_same_message,
    "pull": test_pulling.test_pulling_by_position,
    "lite pull": partial(test_pulling.test_lite_pull_polls_seeks_and_commits, assign=True),
    "time": test_pulling.test_searching_by_time,
    "lookup": test_pulling.test_looking_up_by_id_and_by_key,
    "restart": partial(test_restarts.test_a_broker_comes_back_with_everything, end="stopped"),
}


@pytest.fixture(scope="module", autouse=True)
def _packages_soon() -> None:
    try:
        apache_packages("4.9.7", maven_seconds_max=MAVEN_SECONDS_MAX)
    except NotAvailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", SCENARIOS)
@clients_at_systems([(JAVA_497, ORBITLOG)])
def test_it_works_as_at_apache(client: Client, name: str) -> None:
    SCENARIOS[name](client)
