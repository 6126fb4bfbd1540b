"""Settings of the brokers of migration tests."""

from __future__ import annotations

from tests.interop.migration_states import DELAY_LEVELS

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "messageDelayLevel": DELAY_LEVELS,
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false",
    # Longer than Java 5.x gathers outcomes before it writes them down (3 s): else it asks, and commits, twice.
    "transactionCheckInterval": 4000,
    "transactionTimeOut": 5000,
    "transactionCheckMax": 1000,
    # Java saves offsets every five or ten seconds otherwise.
    "flushConsumerOffsetInterval": 1000,
    "flushDelayOffsetInterval": 1000,
}
