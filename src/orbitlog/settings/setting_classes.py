"""Classes of the Java keys that Orbitlog does not read: harmless, behaviour (warned about) or safety (refused).

A key in a settings table (`store_settings`, `broker_settings`) is honoured and has no place here. A `BEHAVIOUR` or
`SAFETY` key is harmless while its value is Java's default, or one of `HARMLESS_VALUES`. `setting_review` applies the
tables; `docs/reference/settings.md` shows them.
"""

from __future__ import annotations

from orbitlog.settings.limits import BROKER_LIMITS
from orbitlog.settings.setting import AdvisedText
from orbitlog.settings.tls_settings import TLS_SETTINGS

_AUTH_PACKAGE = "org.apache.rocketmq.auth"
# Java classes that decide about requests, by key: those that Apache's broker has decide as Orbitlog does.
APACHE_ACCESS_CLASSES = {
    "authenticationProvider": ("authentication.provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": ("authentication.provider.LocalAuthenticationMetadataProvider",),
    "authenticationStrategy": (
        "authentication.strategy.StatelessAuthenticationStrategy",
        "authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": ("authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": ("authorization.provider.LocalAuthorizationMetadataProvider",),
    "authorizationStrategy": (
        "authorization.strategy.StatelessAuthorizationStrategy",
        "authorization.strategy.StatefulAuthorizationStrategy",
    ),
}

_USE_APACHE = "run this store with Apache's broker"
# The sentence follows `key=value from source: ` and names the reason, and what to do.
SAFETY: dict[str, AdvisedText] = {
    # Who may connect
    **{
        key: AdvisedText(
            "classes of Java are not run and the users and policies of accessFile decide instead",
            f"remove this line, or set {key} to the class of Apache RocketMQ",
        )
        for key in APACHE_ACCESS_CLASSES
    },
    # How safe an acknowledgement is
    "enableSlaveActingMaster": AdvisedText(
        "no slave can take over from this broker", "set enableSlaveActingMaster=false to run a single master"
    ),
    "duplicationEnable": AdvisedText(
        "confirm offsets are not supported and consumers would get messages that are not confirmed",
        "set duplicationEnable=false",
    ),
    # Where data is stored, and in which format
    "enableDLegerCommitLog": AdvisedText(
        "DLedger logs are not served",
        "convert the store with `orbitlog doctor convert` and remove this line, or run it with Apache's broker",
    ),
    "storeType": AdvisedText(
        "queues, topics and offsets in RocksDB are not served",
        "convert the store with `orbitlog doctor convert` and set storeType=default, or run it with Apache's broker",
    ),
    "configManagerVersion": AdvisedText(
        "topics, groups and offsets in RocksDB are not served",
        "convert the store with `orbitlog doctor convert` and set configManagerVersion=v1, or run it with Apache's "
        "broker",
    ),
    "rocksdbCQDoubleWriteEnable": AdvisedText(
        "queues in RocksDB are not supported and would miss what is sent here",
        "set rocksdbCQDoubleWriteEnable=false to use queue files only",
    ),
    **{
        key: AdvisedText(
            "POP state in RocksDB is not supported and messages in flight would be lost or redelivered", _USE_APACHE
        )
        for key in ("popConsumerKVServiceEnable", "popConsumerKVServiceInit")
    },
    "timerRocksDBEnable": AdvisedText("timer messages in RocksDB are not supported and could be lost", _USE_APACHE),
    "transRocksDBEnable": AdvisedText("transactions in RocksDB are not supported and could be lost", _USE_APACHE),
    "indexRocksDBEnable": AdvisedText(
        "an index in RocksDB is not supported and would miss what is sent here",
        "set indexRocksDBEnable=false to use index files only",
    ),
    "messageStorePlugIn": AdvisedText(
        "store plug-ins such as tiered storage are not supported and messages moved by one would be missing",
        _USE_APACHE,
    ),
    "maxTopicLength": AdvisedText(
        "topic names longer than 127 characters are not supported and their messages would be hidden",
        f"{_USE_APACHE}, or set maxTopicLength=127 if there are none",
    ),
    "timerPrecisionMs": AdvisedText(
        "a timer precision other than 1000 ms is not supported and Apache's broker could lose timer messages "
        "afterwards",
        "set timerPrecisionMs=1000 for both brokers",
    ),
    "timerWheelSnapshotFlush": AdvisedText(
        "snapshots of the timer wheel are not supported and Apache's broker would start from an old one afterwards",
        "set timerWheelSnapshotFlush=false for both brokers",
    ),
}

# Safety keys that concern the files of a store: commands that read a store warn about them.
STORE_KEYS = frozenset(
    """
storePathCommitLog readOnlyCommitLogStorePaths enableDLegerCommitLog storeType configManagerVersion
rocksdbCQDoubleWriteEnable popConsumerKVServiceEnable popConsumerKVServiceInit timerRocksDBEnable transRocksDBEnable
indexRocksDBEnable messageStorePlugIn enableLmq enabledAppendPropCRC forceVerifyPropCRC
maxTopicLength timerPrecisionMs timerWheelSnapshotFlush
""".split()
)
# Of these, those without which a command would look in the wrong directory: it refuses.
PLACE_KEYS = frozenset(("storePathCommitLog", "readOnlyCommitLogStorePaths"))

# The sentence follows `key=value from source: ` and names the consequence.
BEHAVIOUR: dict[str, str] = {
    # Replication
    "totalReplicas": "queue locks of ordered consumers are granted by this broker alone, with lockInStrictMode also",
    # Names and connections
    "fetchNamesrvAddrByAddressServer": "address servers are not supported; the broker registers with the name servers "
    "of namesrvAddr only",
    "authenticationWhitelist": "no request skips authentication",
    "authorizationWhitelist": "no request skips authorization",
    "migrateAuthFromV1Enabled": AdvisedText(
        "users and permissions of plain_acl.yml are not migrated at start", "set aclEnable=true to use them as they are"
    ),
    "socksProxyConfig": "connections to name servers and other brokers do not use a SOCKS proxy",
    "rejectPullConsumerEnable": "pull consumers are not rejected",
    "startAcceptSendRequestTimeStamp": "sends are accepted as soon as the broker is ready",
    "disappearTimeAfterStart": "the broker renews its registration and delivers timer and POP messages as soon as it "
    "is ready",
    # Topics, queues and the index
    "messageIndexEnable": "the index is written nevertheless and messages can be queried by key",
    "indexFileWriteEnable": "index files are written nevertheless",
    "indexFileReadEnable": "queries by key read the index files nevertheless",
    "enableConsumeQueueExt": "no consumequeue_ext units are written; SQL filters are evaluated for every message",
    "validateSystemTopicWhenUpdateTopic": "system topics cannot be changed",
    "enableLmqQuota": "the number of light message queues is not limited",
    "msgTraceTopicName": "the trace topic is RMQ_SYS_TRACE_TOPIC; create the other topic with updateTopic",
    "filterSupportRetry": "retried messages are not filtered by the SQL expression of their subscription, as in 5.5",
    "priorityOrderAsc": "message priorities are not supported; messages are delivered in the order of the queue",
    # Consumption
    "disableConsumeIfConsumerReadSlowly": "consumers with a large lag are not disabled",
    "coldDataFlowControlEnable": "reads of old messages are not throttled",
    "enablePopMessageThreshold": "the number of POP messages in flight is not limited",
    "popResponseReturnActualRetryTopic": "POP responses name the original topic of a retried message",
    "initPopOffsetByCheckMsgInMem": "a new POP group starts at the first message while that is in memory",
    "popConsumerFSServiceInit": "POP messages that are not acknowledged are redelivered nevertheless",
    # Timer messages
    "timerStopEnqueue": "timer messages are delivered nevertheless",
    "timerCongestNumEachSlot": "the number of timer messages for the same second is not limited",
    # Disk and observation
    "replicasPerDiskPartition": "disk limits count the whole partition, as for one broker",
    "logicalDiskSpaceCleanForciblyThreshold": "disk limits count the whole partition, as for one broker",
}

# Values that change nothing, if they are not just Java's default; `<=` allows every number up to it.
HARMLESS_VALUES = {
    **{
        key: ("", *(f"{_AUTH_PACKAGE}.{name}" for name in class_names))
        for key, class_names in APACHE_ACCESS_CLASSES.items()
    },
    "totalReplicas": ("<=1",),
    "maxTopicLength": ("<=127",),
    "popConsumerKVServiceInit": ("false",),
    "socksProxyConfig": ("{}", ""),
    "startAcceptSendRequestTimeStamp": ("<=0",),
    "disappearTimeAfterStart": ("<=0",),
    "replicasPerDiskPartition": ("<=1",),
}

# Switches of access control, which broker and name server honour.
ACCESS_SWITCHES = ("aclEnable", "authenticationEnabled", "authorizationEnabled")
# Keys that protect, honoured or to be: an unknown key like one of these is refused as one like a safety key is.
PROTECTING_KEYS = (
    "storePathRootDir",
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "flushDiskType",
    "inSyncReplicas",
    "minInSyncReplicas",
    "allAckInSyncStateSet",
    "enableControllerMode",
    "brokerRole",
    "brokerId",
    "brokerPermission",
    "bindAddress",
    "configBlackList",
    "accessFile",
    "haMembers",
    *ACCESS_SWITCHES,
)

# Keys of Orbitlog; a command that reads a store finds them in a broker.conf and has no use for them.
ORBITLOG_KEYS = frozenset(
    "accessFile accessLogFile serverConnectionsMax dispatchEngine vipChannelEnable compat haMembers haCompatSyncDefault"
    " haFirstRequest allowAnonymous userMessagesPerSecondMax userBytesPerSecondMax userConnectionsMax userTopicsMax"
    " authenticationFailuresPerMinuteMax metricsHttpExporterTarget metricsQueueLag logFormat logTo slowRequestMs"
    " haObserver replicaCoordinator replicaCoordinatorCaFile replicaCoordinatorCertFile"
    " replicaCoordinatorKeyFile replicaCoordinatorPassword replicaCoordinatorUser replicaMemberId"
    " replicaLease replicaMinInSync replicaPatience".split()
) | frozenset((*(limit.key for limit in BROKER_LIMITS), *TLS_SETTINGS))

# Threads, pools, pauses, caches and what only matters together with a refused key: no promise changes.
HARMLESS = frozenset(
    """
accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond adminBrokerThreadPoolNums
adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync
asyncSendEnable authConfigPath autoDeleteUnusedStats autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond
broadcastOffsetExpireSecond brokerConfigPath brokerFastFailureEnable brokerHeartbeatInterval
brokerNotActiveTimeoutMillis cgColdReadThreshold channelExpiredTimeout channelNotActiveInterval
checkCommitLogOffsetOnRecover checkCRCOnRecover checkSyncStateSetPeriod cleanOfflineBrokerInterval
cleanResourceInterval cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval
clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums clientOnewaySemaphoreValue
clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads clusterName
coldCtrStrategyEnable coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq commercialBaseCount
commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount commercialTransCount
commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
commitLogRecoverMaxNum commitLogRollingInterval commitLogRollingMinimumSize commitLogSwapMapInterval
commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
compactionThreadNum compatibleWithOldNameSrv configName connectTimeoutMillis
consumerFallbehindThreshold consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
consumerOffsetUpdateVersionStep correctLogicMinOffsetForceInterval
correctLogicMinOffsetSleepInterval dataReadAheadEnable debugLockEnable defaultQueryMaxNum delayOffsetUpdateVersionStep
deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly disableCallbackExecutor
disableNettyWorkerGroup diskFallRecorded dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread dLegerGroup
dLegerPeers dLegerSelfId enableAcceleratedRecovery enableAsyncReput enableBatchPush
enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently enableCalcFilterBitMap enableCleanExpiredOffset
enableCompaction enableConnectionMetrics enableCreateSysGroup enableDetailStat enableFastChannelEventProcess
enableLagAndDlqMetrics enableLiteEventMode enableLitePopLog enableLmqStats
enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics enableNetWorkFlowControl
enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge
enablePopLog enablePopMetrics enableReconnectForGoAway enableRegisterProducer enableRemoteEscape enableRemotingMetrics
enableRequestMetrics enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
enableShutdownGracefully enableSingleTopicRegister enableSkipLongAwaitingAck enableSplitMetadata enableStatsMetrics
enableTransactionMetrics endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup fetchNamesrvAddrInterval
filterDataCleanTimeSpan filterServerNums flushCommitLogTimed flushConsumeQueueLeastPages
flushConsumerOffsetHistoryInterval
flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceRegister forwardTimeout globalColdReadThreshold
heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode
inBrokerContainer isolateLogEnable
iteratorWhenUseRocksdbConsumeQueue liteEventCheckInterval liteEventFullDispatchDelayTime
liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable
liteLagLatencyMetricsEnable liteLagLatencyTopK litePullMessageEnable litePullMessageThreadPoolNums
litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
lockInStrictMode logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
maxBatchDeleteFilesNum maxChecksumRange maxClientEventCount maxConsumeQueueScan maxDelayTime maxErrorRateOfBloomFilter
maxFilterMessageSize maxLiteSubscriptionCount maxMessageFilterNumForNotification
maxMsgsNumBatch maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles
maxRocksDBIndexQueryDays maxSlaveResendLength maxStatsIdleTimeInMinutes memTableFlushIntervalMs messageIndexSafe
minLiteTTl objectStoreAccessKey
objectStoreBucket objectStoreEndpoint objectStoreSecretKey osPageCacheBusyTimeOutMills
persistConsumerOffsetIncrementally popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
popCkStayBufferTimeOut popConsumerKVServiceLog popFromRetryProbability popFromRetryProbabilityForPriority
popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
popPollingSize popReviveConcurrency popReviveMaxAttemptTimes
popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent preferredLeaderId printChannelGroups printChannelGroupsMinNum
processReplyMessageThreadPoolNums pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout putMsgIndexHightWater
putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity readAheadCacheEnable
readAheadCacheExpireDuration readAheadCacheSizeThresholdRate readAheadMessageCountThreshold
readAheadMessageSizeThreshold readUnCommitted realTimeNotifyConsumerChange realTimePersistRocksDBConfig
recheckReputOffsetFromCq recordGetMessageResult recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval
replyThreadPoolQueueCapacity reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime
rmqAddressServerDomain rmqAddressServerSubGroup rocksdbCompressionType rocksdbFlushWalFrequency
rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps scanAvailableNameSrv
scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable
sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue
serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable serverNettyWorkerGroupEnable
serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads sharedByteBufferNum shutdownWaitTimeSeconds
skipPreOnline skipWhenCKRePutReachMaxTimes spinLockCollisionRetreatOptimalDegree
splitMetadataSize statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum statRocksDBCQIntervalSec
storePathBrokerIdentity storePathEpochFile subscriptionExpiredTimeout
syncBrokerMemberGroupPeriod syncControllerMetadataPeriod syncFromLastFile
syncMasterFlushOffsetWhenStartup tieredBackendServiceProvider tieredMetadataServiceProvider tieredStorageLevel
tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable
tieredStoreDeleteFileInterval tieredStoreFilePath tieredStoreFileReservedTime tieredStoreGroupCommit
tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout
tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount
tieredStoreMaxPendingLimit timerColdDataCheckIntervalMs timerEnableCheckMetrics timerEnableRetryUntilSuccess
timerFlushIntervalMs timerGetMessageThreadNum timerInterceptDelayLevel timerMetricSmallThreshold
timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimelineEnable timerRecallToTimeWheelEnable
timerReputServiceCorePoolSize timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBPrecisionMs
timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
timerRocksDBTimeExpiredMaxTps timerRollWindowSlot timerSkipUnknownError timerWheelSnapshotIntervalMs topicQueueLockNum
transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity
transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize transferMsgByHeap
transientStorePoolEnable transientStorePoolSize transWriteOriginTransHalfEnable travelCqFileNumWhenGetMessage
updateNameServerAddrPeriod useABSLock useEpollNativeSelector useMessageFilterForNotification usePIDColdCtrStrategy
userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond useReentrantLockWhenPutMessage
useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs useStaticSubscription waitTimeMillsInAckQueue
waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue
waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage
warmMapedFileEnable writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
""".split()
)
