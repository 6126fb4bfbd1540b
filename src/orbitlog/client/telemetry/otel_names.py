"""Names of OpenTelemetry's messaging conventions: attributes, operations and metrics, in one place.

The conventions are still in development: a change of them is a change of this module.
"""

from __future__ import annotations

from typing import Final

SYSTEM: Final = "messaging.system"
ROCKETMQ: Final = "rocketmq"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
NAMESPACE: Final = "messaging.rocketmq.namespace"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
CLIENT_ID: Final = "messaging.client.id"
MESSAGE_TYPE: Final = "messaging.rocketmq.message.type"
TAG: Final = "messaging.rocketmq.message.tag"
KEYS: Final = "messaging.rocketmq.message.keys"
ORDER_KEY: Final = "messaging.rocketmq.message.group"
DELAY_LEVEL: Final = "messaging.rocketmq.message.delay_time_level"
DELIVERY_TIMESTAMP: Final = "messaging.rocketmq.message.delivery_timestamp"
CONSUMPTION_MODEL: Final = "messaging.rocketmq.consumption_model"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

SEND, RECEIVE, PROCESS = "send", "receive", "process"

OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
DURATION_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
