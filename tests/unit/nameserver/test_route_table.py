from __future__ import annotations

from dataclasses import replace

from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig, TopicQueueMapping
from orbitlog.nameserver.route_table import SILENCE_MAX_MS, UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG, RouteTable
from orbitlog.wire.bodies.registration_body import Registration, TopicWrapper
from orbitlog.wire.bodies.route_bodies import BrokerData, QueueData
from orbitlog.wire.nameserver_headers import RegisterBrokerRequest, RegisterBrokerResponse

MASTER = RegisterBrokerRequest(
    broker_name="a", broker_address="10.0.0.1:10911", cluster="C", ha_address="10.0.0.1:10912", broker_id=0
)
SLAVE = replace(MASTER, broker_address="10.0.0.2:10911", ha_address="10.0.0.2:10912", broker_id=1)
OTHER = replace(MASTER, broker_name="b", broker_address="10.0.0.3:10911")
LINE = "a connection"


def topics(*names: str, counter: int = 1, **settings: int) -> Registration:
    table = {name: TopicConfig(name, 8, 8, **settings) for name in (*names, "a", "TBW102")}
    return Registration(wrapper=TopicWrapper(topics=table, data_version=DataVersion(counter, 1000)))


def register(
    table: RouteTable,
    request: RegisterBrokerRequest = MASTER,
    registration: Registration | None = None,
    *,
    now_ms: int = 0,
    line: str = LINE,
) -> RegisterBrokerResponse | None:
    return table.register(request, registration or topics("T"), now_ms=now_ms, connection=line)


def permission(table: RouteTable, topic: str = "T") -> int:
    route = table.route(topic)
    assert route is not None
    return route.queues[0].permission


def test_a_route_has_every_broker_of_the_topic() -> None:
    table = RouteTable()
    register(table)
    register(table, SLAVE)
    register(table, OTHER, topics("T", "U", counter=7))
    route = table.route("T")
    assert route is not None
    assert route.brokers == (
        BrokerData("a", "C", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),
        BrokerData("b", "C", {0: "10.0.0.3:10911"}),
    )
    assert route.queues == (QueueData("a", 8, 8, 6), QueueData("b", 8, 8, 6))
    assert table.route("nothing") is None


def test_slave_gets_its_master_and_registers_no_topics() -> None:
    table = RouteTable()
    assert register(table, SLAVE, topics("OfSlave")) == RegisterBrokerResponse()
    assert table.route("OfSlave") is None
    assert register(table) == RegisterBrokerResponse()
    told = register(table, SLAVE)
    assert told == RegisterBrokerResponse(ha_address="10.0.0.1:10912", master_address="10.0.0.1:10911")


def test_topics_are_replaced_when_the_data_version_changes() -> None:
    table = RouteTable()
    register(table, registration=topics("T", permission=6))
    register(table, registration=topics("T", permission=4))
    assert permission(table) == 6
    register(table, registration=topics("T", permission=4, counter=2))
    assert permission(table) == 4


def test_omitted_topic_stays_unless_the_setting_removes_it() -> None:
    for deletes in (False, True):
        table = RouteTable(delete_topics_left_out=deletes)
        register(table, registration=topics("T"))
        register(table, registration=topics("U", counter=2))
        assert (table.route("T") is None) == deletes
        assert table.route("U") is not None


def test_deleted_topic_returns_with_the_next_registration() -> None:
    table = RouteTable()
    register(table)
    table.delete_topic("T")
    assert table.route("T") is None
    register(table)
    assert table.route("T") is not None


def test_a_topic_is_deleted_in_one_cluster() -> None:
    table = RouteTable()
    register(table)
    register(table, replace(OTHER, cluster="D"))
    table.delete_topic("T", "D")
    route = table.route("T")
    assert route is not None and [queue.broker_name for queue in route.queues] == ["a"]
    table.delete_topic("T", "nowhere")
    assert table.route("T") is not None
    table.delete_topic("T", "C")
    assert table.route("T") is None


def test_single_topic_of_an_unknown_broker_is_refused() -> None:
    table = RouteTable()
    only = Registration(wrapper=TopicWrapper(topics={"T": TopicConfig("T")}))
    assert register(table, registration=only) is None
    assert table.cluster_info().brokers == {}
    assert register(table) is not None
    changed = replace(only, wrapper=replace(only.wrapper, data_version=DataVersion(9, 1)))
    assert register(table, registration=changed) is not None
    assert table.route("a") is not None


def test_slave_that_became_master_has_one_entry() -> None:
    table = RouteTable()
    register(table)
    register(table, SLAVE)
    table.unregister("C", MASTER.broker_address, "a")
    register(table, replace(SLAVE, broker_id=0))
    assert table.members("C", "a").addresses == {0: SLAVE.broker_address}


def test_an_older_state_does_not_replace_a_newer_one() -> None:
    table = RouteTable()
    newer = topics("T")
    newer = replace(newer, wrapper=replace(newer.wrapper, data_version=DataVersion(1, 1, 5)))
    register(table, registration=newer)
    late = replace(MASTER, broker_address="10.0.0.9:10911")
    assert register(table, late) == RegisterBrokerResponse()
    assert table.members("C", "a").addresses == {0: MASTER.broker_address}
    assert not table.knows("C", "10.0.0.9:10911")


def test_unregister_removes_topics_that_only_that_broker_served() -> None:
    table = RouteTable()
    register(table)
    register(table, SLAVE)
    register(table, OTHER, topics("U"))
    table.unregister("C", MASTER.broker_address, "a")
    assert table.members("C", "a").addresses == {1: SLAVE.broker_address}
    assert table.route("T") is not None
    table.unregister("C", SLAVE.broker_address, "a")
    assert table.route("T") is None
    assert table.cluster_info().clusters == {"C": ("b",)}
    table.unregister("C", "nobody", "nobody")
    table.unregister("C", OTHER.broker_address, "b")
    assert table.cluster_info().clusters == {}
    assert table.topics()().topics == ()
    assert table.broker_count == 0


def test_closed_connection_removes_its_brokers() -> None:
    table = RouteTable()
    register(table, line="first")
    register(table, OTHER, line="second")
    assert [key.address for key in table.connection_closed("first")] == [MASTER.broker_address]
    assert list(table.cluster_info().brokers) == ["b"]
    register(table, OTHER, line="third")
    assert table.connection_closed("second") == []
    assert list(table.cluster_info().brokers) == ["b"]


def test_silent_broker_expires() -> None:
    table = RouteTable()
    register(table, now_ms=0)
    register(table, replace(OTHER, heartbeat_timeout_ms=1000), now_ms=0, line="other")
    assert table.expire(1000) == []
    assert [(key.address, line) for key, line in table.expire(1001)] == [(OTHER.broker_address, "other")]
    table.touch("C", MASTER.broker_address, 5000)
    table.touch("C", "nobody", 5000)
    assert table.expire(5000 + SILENCE_MAX_MS) == []
    assert len(table.expire(5001 + SILENCE_MAX_MS)) == 1
    assert table.route("T") is None


def test_data_versions_are_compared_by_all_three_numbers() -> None:
    table = RouteTable()
    assert table.has_changed("C", MASTER.broker_address, DataVersion())
    register(table)
    assert not table.has_changed("C", MASTER.broker_address, DataVersion(1, 1000))
    for other in (DataVersion(2, 1000), DataVersion(1, 1001), DataVersion(1, 1000, 1)):
        assert table.has_changed("C", MASTER.broker_address, other)
    assert table.data_version("C", MASTER.broker_address) == DataVersion(1, 1000)
    assert table.data_version("C", "nobody") is None


def test_wiped_permission_stays_until_restored_or_changed() -> None:
    table = RouteTable()
    register(table)
    register(table, OTHER)
    assert table.wipe_write_permission("a") == 3
    assert permission(table) == 4
    register(table)
    assert permission(table) == 4
    assert table.add_write_permission("a") == 3
    assert permission(table) == 6
    table.wipe_write_permission("a")
    register(table, registration=topics("T", counter=2))
    assert permission(table) == 6
    assert table.wipe_write_permission("nobody") == 0


def test_lists_of_topics() -> None:
    table = RouteTable()
    register(table, registration=topics("T", "unit", sys_flag=UNIT_FLAG))
    register(table, replace(OTHER, cluster="D"), topics("U", sys_flag=UNIT_SUBSCRIPTION_FLAG))
    assert table.topics()().topics == ("T", "TBW102", "U", "a", "unit")
    assert table.topics_of_cluster("D")().topics == ("TBW102", "U", "a")
    assert table.topics_of_cluster("nowhere")().topics == ()
    system = table.system_topics()
    assert (system.topics, system.broker_address) == (("C", "a", "D", "b"), MASTER.broker_address)
    assert table.unit_topics(has=UNIT_FLAG).topics == ("T", "TBW102", "a", "unit")
    assert table.unit_topics(has=UNIT_SUBSCRIPTION_FLAG, lacks=UNIT_FLAG).topics == ("U",)
    assert RouteTable().system_topics().broker_address is None


def test_register_topic_needs_a_known_broker() -> None:
    table = RouteTable()
    register(table)
    table.register_topic("New", [QueueData("a", 1, 1, 6)])
    table.register_topic("Bad", [QueueData("a", 1, 1, 6), QueueData("nobody", 1, 1, 6)])
    table.register_topic("Empty", [])
    assert table.route("New") is not None
    assert table.route("Bad") is None
    assert table.route("Empty") is None


def test_mappings_of_static_topics_are_part_of_the_route() -> None:
    table = RouteTable()
    static = topics("T")
    mapping = TopicQueueMapping(topic="T", broker_name="a", total_queue_count=8)
    register(table, registration=replace(static, wrapper=replace(static.wrapper, mappings={"T": mapping})))
    route = table.route("T")
    assert route is not None and route.mappings == {"a": mapping}


def test_slave_acts_as_master_if_both_sides_allow_it() -> None:
    acting = replace(MASTER, enable_acting_master=True)
    slave = replace(SLAVE, enable_acting_master=True)
    for supports in (False, True):
        table = RouteTable(support_acting_master=supports)
        register(table, acting)
        register(table, slave)
        assert permission(table) == 6
        table.unregister("C", MASTER.broker_address, "a")
        route = table.route("T")
        assert route is not None
        assert route.queues[0].permission == 4
        assert route.brokers[0].addresses == {0 if supports else 1: SLAVE.broker_address}
        register(table, slave, topics("T", counter=5))
        assert permission(table) == 4


def test_every_change_increments_the_revision() -> None:
    table = RouteTable()
    seen = {table.revision}
    for change in (
        lambda: register(table),
        lambda: table.wipe_write_permission("a"),
        lambda: table.register_topic("N", [QueueData("a")]),
        lambda: table.delete_topic("N"),
        lambda: table.connection_closed(LINE),
        lambda: register(table),
        lambda: table.expire(10**9),
    ):
        change()
        assert table.revision not in seen
        seen.add(table.revision)
