"""Remedies against attacks, each with a change of the source that removes it and a test that must fail then."""

from __future__ import annotations

from typing import NamedTuple


class Removal(NamedTuple):
    """A text of one module, what replaces it, and the test that notices it."""

    attack: str
    module: str
    text: str
    replacement: str
    test: str


REMOVALS = (
    Removal(
        "system topics are sendable",
        "formats/names.py",
        "        return topic.startswith(CLOUD_TRACE_TOPIC_PREFIX)\n",
        "        return True\n",
        "test_poison_messages.py::test_send_to_a_system_topic_is_refused",
    ),
    Removal(
        "a message that cannot be delivered is tried for ever",
        "broker/sending/quarantine.py",
        "            if not is_final(result):\n",
        "            if True:\n",
        "test_poison_messages.py::test_popped_message_that_cannot_be_revived_does_not_stop_revival",
    ),
    Removal(
        "topics are registered in one frame",
        "broker/runtime/registration.py",
        "            if settings[keys.SPLIT_REGISTRATION]\n",
        "            if False\n",
        "test_many_topics.py::test_topics_that_fill_several_frames_are_registered_in_parts",
    ),
    Removal(
        "long polls of a connection are not limited",
        "broker/pulling/held_requests.py",
        "        if count >= self._per_connection_max:\n",
        "        if False:\n",
        "test_held_request_floods.py::test_pull_over_the_limit_is_answered_at_once",
    ),
    Removal(
        "long polls of all connections are not limited",
        "broker/pulling/held_requests.py",
        "        if self.total >= self._total_max:\n",
        "        if False:\n",
        "test_held_request_floods.py::test_greediest_connection_gives_way",
    ),
    Removal(
        "references in bodies are not counted",
        "wire/bodies/body_json.py",
        "REQUEST_REFERENCES_MAX = 64\n",
        "REQUEST_REFERENCES_MAX = 10**9\n",
        "test_hostile_bodies.py::test_request_with_many_references_is_refused",
    ),
    Removal(
        "statistics of any number of queues",
        "broker/admin/queue_statistics.py",
        "        state.limits.refuse_over(STATS_QUEUES, counted.total + config.read_queue_count)\n",
        "",
        "test_wide_tables.py::test_repeated_topics_of_a_request_count_once_and_too_many_queues_are_refused",
    ),
    Removal(
        "long loose JSON is read",
        "wire/bodies/body_json.py",
        "LOOSE_REQUEST_BYTES_MAX = 64 * 1024\n",
        "LOOSE_REQUEST_BYTES_MAX = 2**30\n",
        "test_hostile_bodies.py::test_long_loose_body_is_refused_without_work",
    ),
    Removal(
        "a name is taken over",
        "nameserver/route_table.py",
        "        self._protects_names = protects_names\n",
        "        self._protects_names = False\n",
        "test_name_server_takeover.py::test_stranger_cannot_take_the_name_of_a_connected_broker",
    ),
    Removal(
        "administration of exposed servers",
        "remoting/request_dispatch.py",
        "refuse if is_administrative(code) else handler",
        "handler",
        "test_administration.py::test_exposed_broker_refuses_administration_and_serves_clients",
    ),
    Removal(
        "a wide topic is searched at once",
        "broker/pop/pop_service.py",
        "        if sum(count for _, count in spans) > NARROW_QUEUES:\n",
        "        if False:\n",
        "test_wide_tables.py::test_pop_of_a_wide_topic_finds_the_only_message_in_short_steps",
    ),
    Removal(
        "counts inside bodies are not limited",
        "settings/limits.py",
        "        if count > self._values[limit.key]:\n",
        "        if False:\n",
        "test_hostile_bodies.py::test_request_with_too_many_parts_is_refused",
    ),
    Removal(
        "settings of requests have no range",
        "settings/runtime_keys.py",
        "    if allowed is not None and int(text) not in allowed:\n",
        "    if False:\n",
        "test_administration.py::test_request_cannot_set_extreme_values",
    ),
    Removal(
        "links are followed by the broker",
        "storefiles/confined/store_links.py",
        "            raise StoreLinkError(_sentence(link, paths.root))\n",
        "            pass\n",
        "test_foreign_stores.py::test_broker_refuses_links_to_anything",
    ),
    Removal(
        "a chain of the index is followed to its end",
        "store/reads/key_query.py",
        "        if self._entries_left < 0:\n",
        "        if False:\n",
        "test_key_collisions.py::test_search_ends_at_a_limit_and_says_so",
    ),
    Removal(
        "a key is searched at once",
        "store/reads/key_query.py",
        "        return self._units >= STEP_WORK\n",
        "        return False\n",
        "test_key_collisions.py::test_search_through_collisions_takes_short_steps_and_finds_the_message",
    ),
    Removal(
        "unsent responses are not counted",
        "remoting/memory_budget.py",
        "        growth, self.unsent_bytes = size - self.unsent_bytes, size\n",
        "        growth = 0\n",
        "test_connection_floods.py::test_unsent_responses_share_one_budget",
    ),
    Removal(
        "unfinished frames are not counted",
        "remoting/memory_budget.py",
        "        growth, self.received_bytes = size - self.received_bytes, size\n",
        "        growth = 0\n",
        "test_connection_floods.py::test_unfinished_frames_share_one_budget",
    ),
    Removal(
        "connections take all descriptors",
        "remoting/flow.py",
        "        if connection.descriptor >= limits.descriptors:\n",
        "        if False:\n",
        "test_connection_floods.py::test_connections_leave_descriptors_to_the_store",
    ),
    Removal(
        "logs contain control characters",
        "cli/output/log_lines.py",
        "        record.message = printable(cut(record.message, LINE_CHARACTERS_MAX))\n",
        "",
        "test_logs_and_terminals.py::test_log_record_is_one_printable_line",
    ),
    Removal(
        "terminals get control characters",
        "cli/output/terminal.py",
        "    if plain.isprintable():\n",
        "    if True:\n",
        "test_logs_and_terminals.py::test_stream_to_a_terminal_escapes_control_sequences",
    ),
    Removal(
        "empty entries of binary headers are not counted",
        "wire/command_decoding.py",
        "        if count > limits.ext_fields_max:\n",
        "        if False:\n",
        "test_hostile_bodies.py::test_binary_header_counts_entries_with_an_empty_key",
    ),
    Removal(
        "errors tell paths to peers",
        "remoting/error_ids.py",
        '    return f"internal error {error_id}; the log of the server has the cause under this id"\n',
        "    return str(error)\n",
        "test_administration.py::test_internal_error_tells_a_peer_an_id_alone",
    ),
    Removal(
        "pulls of others are looked at",
        "broker/pulling/held_pulls.py",
        "        return self._take([pull for pull in waiting if pull.queue_offset < max_offset])\n",
        "        return self._take([pull for pull in waiting if list(waiting).count(pull) and"
        " pull.queue_offset < max_offset and [each for each in waiting if each is pull]])\n",
        "test_held_request_floods.py::test_overdue_pulls_are_taken_in_one_pass",
    ),
)
