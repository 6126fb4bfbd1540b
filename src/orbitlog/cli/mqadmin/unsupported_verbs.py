"""Verbs of Apache's tool that are not supported, each with the reason and the nearest alternative."""

from __future__ import annotations

_CONTROLLER = "use Apache's mqadmin for Apache's controller; `orbitlog replica` is for groups with etcd"
_STATIC = "Orbitlog has no static topics; create topics with `orbitlog topic create`"
_ROCKSDB = "Orbitlog does not use RocksDB; print a broker's tables with `orbitlog dump config`"
UNSUPPORTED = {
    "getControllerMetaData": _CONTROLLER,
    "getControllerConfig": _CONTROLLER,
    "updateControllerConfig": _CONTROLLER,
    "cleanBrokerMetadata": _CONTROLLER,
    "addBroker": "Orbitlog has no broker containers; start a broker with `orbitlog broker`",
    "removeBroker": "Orbitlog has no broker containers; stop the broker's process",
    "resetMasterFlushOffset": "an Orbitlog master keeps no such offset; `orbitlog cluster health` shows the flush lag",
    "updateTopicList": "use `orbitlog topic create` or updateTopic in a loop",
    "updateSubGroupList": "use `orbitlog group create` or updateSubGroup in a loop",
    "startMonitoring": "use `orbitlog cluster health` in a timer",
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "exportMetadata": "use `orbitlog dump config STORE --json`",
    "exportConfigs": "use `orbitlog config show --json`",
    "exportMetrics": "use `orbitlog cluster health --json`",
    "exportMetadataInRocksDB": _ROCKSDB,
    "exportPopRecord": "use `orbitlog dump config STORE`",
    "rocksDBConfigToJson": _ROCKSDB,
    "checkRocksdbCqWriteProgress": _ROCKSDB,
    "dumpCompactionLog": "use `orbitlog dump commitlog FILE`",
    "getColdDataFlowCtrInfo": "cold reads are not throttled; `orbitlog config show` shows settings",
    "updateColdDataFlowCtrGroupConfig": "cold reads are not throttled; `orbitlog config show` shows settings",
    "removeColdDataFlowCtrGroupConfig": "cold reads are not throttled; `orbitlog config show` shows settings",
    "setCommitLogReadAheadMode": "read-ahead is left to the kernel; `orbitlog config show` shows settings",
    "getConsumerStatus": "use consumerStatus or `orbitlog group show --members`",
    "consumer": "use consumerStatus or `orbitlog group show --members`",
    "DecodeMessageId": "use `orbitlog message get ID`",
}
