"""Access control of a broker: loads it from the settings, and puts the request guard before every path.

`check_start` also has the other checks of a start that concern several settings at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.access.access_settings import ACCESS_SETTINGS, AUTHENTICATION, AccessOptions, access_options
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.listen_address import with_listen_address
from orbitlog.errors import BadField
from orbitlog.formats import store_tree as tree
from orbitlog.formats.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitlog.formats.records import properties as props
from orbitlog.settings.listen_exposure import AnonymousAccess
from orbitlog.settings.setting import AdvisedText, SettingError
from orbitlog.settings.tls_settings import check_tls
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.store_contents import has_rocksdb_data

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl
    from orbitlog.broker.sending.fast_sends import FastSends
    from orbitlog.remoting.connection import Connection, FastPath, Handler
    from orbitlog.store.message_store import MessageStore

ACCESS_FILE = "access.json"
_JAVA_USERS = "users"
_REAL_TOPIC_INSIDE = frozenset((HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC))


def check_start(settings: BrokerSettings) -> BrokerSettings:
    """Return the settings with their listen address; raise a `SettingError` if settings contradict each other.

    Servers and `doctor move` ask this one function, so that the report and the start give the same refusals.
    """
    settings = with_listen_address(settings)
    check_access(settings)
    check_tls(settings.texts)
    return settings


def check_access(settings: BrokerSettings, root: Path = Path()) -> AccessOptions:
    """Return the options of access control.

    Raise a `SettingError` if settings contradict each other, or if other machines could connect to an open broker.
    """
    values = {key: settings[setting] for key, setting in ACCESS_SETTINGS.items()}
    options = access_options(values, root / tree.CONFIG / ACCESS_FILE, os.environ)
    if not options.is_on:
        _refuse_open_start(settings)
    return options


def _refuse_open_start(settings: BrokerSettings) -> None:
    """Raise a `SettingError` if other machines could use a broker without TLS, and no setting states that they may."""
    if settings[keys.ALLOW_ANONYMOUS] is not AnonymousAccess.NONE or not settings.is_exposed:
        return
    tls = check_tls(settings.texts)
    if tls is None or not tls.server.is_enforcing:
        problem = (
            f"bindAddress={settings[keys.BIND_ADDRESS]} lets other machines connect, and neither access control nor TLS"
            " protects the broker"
        )
        advice = (
            "set authenticationEnabled=true, aclEnable=true or tls.server.mode=enforcing, or allowAnonymous=clients to"
            " serve every producer and consumer without credentials"
        )
        raise SettingError(AdvisedText(problem, advice), key=keys.BIND_ADDRESS.key)


def load_access(settings: BrokerSettings, root: Path) -> AccessControl | None:
    """Return the access control of a broker with the store at `root`; None if none is switched on.

    Raise an `OrbitlogError` if settings or account files are invalid. Nothing is written.
    """
    options = check_access(settings, root)
    if not options.is_on:
        return None
    if options.checks_users:
        _refuse_users_in_rocksdb(root, options)
    from orbitlog.access.access_control import AccessControl  # hashing and YAML, which most brokers do not need

    return AccessControl(options, cluster=settings[keys.CLUSTER_NAME])


def _refuse_users_in_rocksdb(root: Path, options: AccessOptions) -> None:
    """Raise a `SettingError` if a Java broker left users in the store and none were created for this broker.

    It would start and refuse every client that the Java broker knew.
    """
    database = root / tree.CONFIG / _JAVA_USERS
    if options.user_file.exists() or not has_rocksdb_data(RealDisk(), database):
        return
    raise SettingError(
        f"authenticationEnabled=true and {database} has users of Apache's broker in RocksDB, which are not read; create"
        f" them in {options.user_file} with `orbitlog access user add` and `orbitlog access policy`",
        key=AUTHENTICATION.key,
    )


def guard_paths(
    access: AccessControl, store: MessageStore, handler: Handler, fast_path: FastSends
) -> tuple[Handler, FastPath]:
    """Return the handler and the fast path of a broker, both guarded."""
    from orbitlog.access.certificate_sender import named_by_certificate
    from orbitlog.access.guarded_handler import guarded_handler
    from orbitlog.broker.sending.guarded_sends import GuardedSends
    from orbitlog.remoting.request_dispatch import refuse_later

    access.guard.message_topic = lambda physical_offset: topic_at(store, physical_offset)
    guarded = named_by_certificate(access.guard, guarded_handler(access, handler, refuse_later))
    return guarded, GuardedSends(access.guard, fast_path)


def publishing_check(access: AccessControl | None) -> Callable[[str, Connection, str], bool] | None:
    """Return the call that decides whether an account may send to a topic over a connection; None if every one may."""
    if access is None:
        return None
    guard = access.guard
    return lambda name, connection, topic: guard.may_publish(name, topic, connection.remote_address[0])


def topic_at(store: MessageStore, physical_offset: int) -> str | None:
    """Return the topic of a stored message, of a scheduled or half message the topic it will be delivered to.

    Return None without a message. Raise `BadField` past the confirmed end, where a message may appear at any time.
    """
    if physical_offset >= store.confirmed_to:
        raise BadField(f"{physical_offset} is past the confirmed end of the log", field="physical offset")
    message = store.read_at(physical_offset)
    if message is None:
        return None
    if message.topic in _REAL_TOPIC_INSIDE:
        return message.properties.get(props.REAL_TOPIC, message.topic)
    return message.topic
