"""Verbs of Apache's tool that are not offered here, each with why, and what comes nearest."""

from __future__ import annotations

_ACCESS = "brokers of ours have no users; `orbitlog context add` keeps credentials for those that do"
_CONTROLLER = "there is no controller here; `orbitlog cluster list` lists brokers"
_STATIC = "there are no static topics here; `orbitlog topic create` makes topics"
_ROCKSDB = "there is no RocksDB here; `orbitlog dump config` shows what a broker keeps"
NOT_OFFERED = {
    "haStatus": "`orbitlog cluster health` is the nearest; there is no replication to show",
    "getSyncStateSet": _CONTROLLER,
    "getBrokerEpoch": _CONTROLLER,
    "getControllerMetaData": _CONTROLLER,
    "getControllerConfig": _CONTROLLER,
    "updateControllerConfig": _CONTROLLER,
    "electMaster": _CONTROLLER,
    "cleanBrokerMetadata": _CONTROLLER,
    "addBroker": "brokers are no containers here; `orbitlog broker` starts one",
    "removeBroker": "brokers are no containers here; stop the process of the broker",
    "resetMasterFlushOffset": "there is no replication here; `orbitlog cluster health` shows the flush lag",
    "updateTopicList": "`orbitlog topic create` in a loop, or updateTopic, is the nearest",
    "updateSubGroupList": "`orbitlog group create` in a loop, or updateSubGroup, is the nearest",
    "startMonitoring": "`orbitlog cluster health` in a timer is the nearest",
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "exportMetadata": "`orbitlog dump config STORE --json` is the nearest",
    "exportConfigs": "`orbitlog config show --json` is the nearest",
    "exportMetrics": "`orbitlog cluster health --json` is the nearest",
    "exportMetadataInRocksDB": _ROCKSDB,
    "exportPopRecord": "`orbitlog dump config STORE` is the nearest",
    "rocksDBConfigToJson": _ROCKSDB,
    "checkRocksdbCqWriteProgress": _ROCKSDB,
    "dumpCompactionLog": "`orbitlog dump commitlog FILE` is the nearest",
    "getColdDataFlowCtrInfo": "cold reads are not throttled here; `orbitlog config show` shows settings",
    "updateColdDataFlowCtrGroupConfig": "cold reads are not throttled here; `orbitlog config show` shows settings",
    "removeColdDataFlowCtrGroupConfig": "cold reads are not throttled here; `orbitlog config show` shows settings",
    "setCommitLogReadAheadMode": "read-ahead is the system's here; `orbitlog config show` shows settings",
    "getConsumerStatus": "consumerStatus, or `orbitlog group show --members`, is the nearest",
    "consumer": "consumerStatus, or `orbitlog group show --members`, is the nearest",
    "DecodeMessageId": "`orbitlog message get ID` is the nearest",
    **{
        f"{word}{what}": _ACCESS
        for word in ("create", "update", "delete", "get", "list", "copy")
        for what in ("User", "Acl")
    },
}
