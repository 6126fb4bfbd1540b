"""Keys that Apache's name servers 4.9.7 and 5.5.0 read from `namesrv.conf`, with types, defaults and classes.

The keys are the setters of `NamesrvConfig`, `NettyServerConfig` and, as `NamesrvStartup` of 5.5.0 reads it,
`NettyClientConfig`. `tests/interop/test_java_settings.py` compares them with the classes of both versions. A key in
`NAMESERVER_SETTINGS` is honoured; any other that is in neither `SAFETY` nor `BEHAVIOUR` is harmless: threads, buffers
and pauses.
"""

from __future__ import annotations

from orbitlog.settings.java_keys import parse_java_keys
from orbitlog.settings.setting import AdvisedText
from orbitlog.settings.setting_classes import ACCESS_SWITCHES
from orbitlog.settings.setting_review import KeyTables

# key | type | default in 4.9.7 and 5.5.0; with a fourth field, the third is that of 4.9.7 alone
NAMESRV_KEYS = parse_java_keys(
    """
bindAddress|string|-|0.0.0.0
channelNotActiveInterval|long|60000
clientAsyncSemaphoreValue|int|65535
clientCallbackExecutorThreads|int|~
clientChannelMaxIdleTimeSeconds|int|120
clientCloseSocketIfTimeout|boolean|true
clientOnewaySemaphoreValue|int|65535
clientPooledByteBufAllocatorEnable|boolean|false
clientRequestThreadPoolNums|int|-|8
clientRequestThreadPoolQueueCapacity|int|-|50000
clientSocketRcvBufSize|int|0
clientSocketSndBufSize|int|0
clientWorkerThreads|int|4
clusterTest|boolean|false
configBlackList|string|-|configBlackList;configStorePath;kvConfigPath
configStorePath|string|~
connectTimeoutMillis|int|3000
defaultThreadPoolNums|int|-|16
defaultThreadPoolQueueCapacity|int|-|10000
deleteTopicWithBrokerRegistration|boolean|-|false
disableCallbackExecutor|boolean|-|false
disableNettyWorkerGroup|boolean|-|false
enableAllTopicList|boolean|-|true
enableControllerInNamesrv|boolean|-|false
enableReconnectForGoAway|boolean|-|true
enableShutdownGracefully|boolean|-|false
enableTopicList|boolean|-|true
kvConfigPath|string|~
listenPort|int|8888|0
maxReconnectIntervalTimeSeconds|long|-|60
needWaitForService|boolean|-|false
notifyMinBrokerIdChanged|boolean|-|false
orderMessageEnable|boolean|false
productEnvName|string|center
returnOrderTopicConfigToBroker|boolean|-|true
rocketmqHome|string|
scanAvailableNameSrv|boolean|-|
scanNotActiveBrokerInterval|long|-|5000
serverAsyncSemaphoreValue|int|64
serverCallbackExecutorThreads|int|0
serverChannelMaxIdleTimeSeconds|int|120
serverNettyWorkerGroupEnable|boolean|-|true
serverOnewaySemaphoreValue|int|256
serverPooledByteBufAllocatorEnable|boolean|true
serverSelectorThreads|int|3
serverSocketBacklog|int|1024
serverSocketRcvBufSize|int|0
serverSocketSndBufSize|int|0
serverWorkerThreads|int|8
shutdownWaitTimeSeconds|int|-|30
socksProxyConfig|string|-|{}
supportActingMaster|boolean|-|false
unRegisterBrokerQueueCapacity|int|-|3000
useEpollNativeSelector|boolean|false
useTLS|boolean|false
waitSecondsForService|int|-|45
writeBufferHighWaterMark|int|0
writeBufferLowWaterMark|int|0
"""
)

# The sentence follows `key=value from source: ` and names the reason, and what to do.
SAFETY = {
    "enableControllerInNamesrv": AdvisedText(
        "controllers are not supported and no replica would be elected master",
        "run Apache's controller as a process of its own and set enableControllerInNamesrv=false",
    ),
}

# The sentence follows `key=value from source: ` and names the consequence.
BEHAVIOUR = {
    "clusterTest": "routes of topics that no broker registered are not looked up at another name server",
    "notifyMinBrokerIdChanged": "brokers are not notified when the lowest broker id of a group changes; a slave acts "
    "as master only after its next look at the group",
    "socksProxyConfig": "the name server opens no connections, with or without a SOCKS proxy",
}

HARMLESS_VALUES = {"socksProxyConfig": ("{}", "")}
# An unknown key like one of these was written for a reason: it is refused.
PROTECTING_KEYS = ("bindAddress", "kvConfigPath", "configBlackList", "accessFile", *ACCESS_SWITCHES)

NAMESRV_TABLES = KeyTables(
    "name server", "namesrv.conf", NAMESRV_KEYS, SAFETY, BEHAVIOUR, HARMLESS_VALUES, PROTECTING_KEYS
)
