"""What tests know about the metrics of Apache's broker 5.5."""

from __future__ import annotations

SHARED_LABELS = {"cluster", "node_id", "node_type", "otel_scope_name"}
ABSENT = {"rocketmq_pop_buffer_scan_time_consume_milliseconds"}
"""Families that Orbitlog does not have; docs/metrics.md gives the reasons."""
ABSENT_PREFIXES = ("rocketmq_rocksdb_", "rocketmq_tiered_store_", "rocketmq_pop_revive_in_", "rocketmq_pop_revive_out_")
