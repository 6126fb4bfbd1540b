"""Connections of commands to a cluster: connects, runs the work in an event loop, and explains refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from orbitlog.cli.contexts import Cluster
from orbitlog.cli.light_asyncio import load_asyncio
from orbitlog.cli.main import Problem
from orbitlog.errors import BrokerRefused, ConnectFailed, HandshakeFailed, NoRoute, OrbitlogError

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.rocketmq import RocketMQ

R = TypeVar("R")

_TOPIC_UNKNOWN, _NO_PERMISSION = 17, 16
# Apache's brokers return the exception class in the remark, with varying codes.
_ACCESS_DENIED = "AclException"


def run_with_client(cluster: Cluster, work: Callable[[RocketMQ], Awaitable[R]], *, topic: str | None = None) -> R:
    """Connect a client, run `work`, close; return its result.

    `topic` is the topic of the request: if it does not exist, the error names similar topics.
    """
    load_asyncio()
    from orbitlog.client.connection.connect import connect

    async def run() -> R:
        options = {"credentials": credentials_of(cluster), "namespace": cluster.namespace, "tls": tls_of(cluster)}
        async with connect(cluster.address, **options) as mq:
            try:
                return await work(mq)
            except (NoRoute, BrokerRefused) as error:
                raise await _explained(error, mq.admin, topic) from error

    return _run(run())


def run_with_admin(cluster: Cluster, work: Callable[[Administration], Awaitable[R]], *, topic: str | None = None) -> R:
    """Run `work` with an admin connection, which cannot send or consume but starts in half the time."""
    load_asyncio()
    from orbitlog.client.admin.administration import administer

    async def run() -> R:
        async with administer(cluster.address, credentials=credentials_of(cluster), tls=tls_of(cluster)) as admin:
            try:
                return await work(admin)
            except (NoRoute, BrokerRefused) as error:
                raise await _explained(error, admin, topic) from error

    return _run(run())


def credentials_of(cluster: Cluster) -> Any:
    if not cluster.access_key or not cluster.secret_key:
        return None
    from orbitlog.access.credentials import Credentials

    return Credentials(cluster.access_key, cluster.secret_key, cluster.security_token or None)


def tls_of(cluster: Cluster) -> Any:
    """Return the TLS of a cluster's connections; None leaves it to the scheme of the address."""
    if not cluster.tls:
        return None
    from orbitlog.client.connection.client_tls import Tls

    return Tls(
        cluster.ca_file or None,
        cluster.cert_file or None,
        cluster.key_file or None,
        cluster.key_password,
        check_host_name=cluster.tls == "full",
        insecure=cluster.tls == "none",
    )


def _run(work: Coroutine[Any, Any, R]) -> R:
    import asyncio
    import logging

    logging.basicConfig(level=logging.ERROR, format="orbitlog: %(message)s")
    try:
        return asyncio.run(work)
    except HandshakeFailed as error:
        raise Problem(f"{error}; see --ca-file of `orbitlog context add`") from error
    except ConnectFailed as error:
        hint = "is a cluster running there? start one with `orbitlog up`, or give its address with -n or --context"
        raise Problem(f"{error}; {hint}") from error


async def _explained(
    error: NoRoute | BrokerRefused, admin: Administration, topic: str | None
) -> OrbitlogError | Problem:
    """Return a refusal with a remedy that the client alone cannot know."""
    if isinstance(error, BrokerRefused) and (error.code == _NO_PERMISSION or _ACCESS_DENIED in error.remark):
        return Problem(f"{_first_line(error)}; set credentials with `orbitlog context add NAME --access-key ...`")
    is_unknown = isinstance(error, NoRoute) or error.code == _TOPIC_UNKNOWN
    if topic is None or not is_unknown:
        return error
    import difflib

    try:
        topics = await admin.topics()
    except OrbitlogError:
        return error
    if topic in topics or not topics:
        return error
    near = difflib.get_close_matches(topic, topics, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "list topics with `orbitlog topic list`"
    return Problem(f"no broker serves topic {topic}; {hint}")


def _first_line(error: BrokerRefused) -> str:
    """Return the first line of a refusal: Apache's brokers send whole stack traces."""
    return " ".join(str(error).split("\n", 1)[0].split())
