"""Name completion: topics and groups of the cluster, and contexts.

The shell blocks while this runs, so names are cached for 30 s in `$XDG_CACHE_HOME/orbitlog`, and a request to the
cluster times out after 1 s. A cluster that does not answer is cached as empty. Any error means no names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orbitlog.errors import OrbitlogError
from orbitlog.settings.atomic_file import replace_file

if TYPE_CHECKING:
    from orbitlog.cli.contexts import Cluster

CACHE_SECONDS = 30.0
TIMEOUT_SECONDS = 1.0
_NAMES_MAX = 5_000


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _offered(ctx, "topics", incomplete)


def complete_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _offered(ctx, "groups", incomplete)


def complete_contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from orbitlog.cli.contexts import load_contexts

    try:
        return [name for name in sorted(load_contexts().table) if name.startswith(incomplete)]
    except (click.ClickException, OSError):
        return []


def topic_argument(**words: Any) -> Callable[[Any], Any]:
    return click.argument("topic", shell_complete=complete_topics, **words)


def group_argument(**words: Any) -> Callable[[Any], Any]:
    return click.argument("group", shell_complete=complete_groups, **words)


def _offered(ctx: click.Context, kind: str, incomplete: str) -> list[str]:
    from orbitlog.cli.contexts import choose_cluster

    try:
        cluster = choose_cluster(ctx.params.get("address"), ctx.params.get("context_name"))
        names = cached_names(cluster, kind, _ask)
    except (click.ClickException, OSError, OrbitlogError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def cache_path(cluster: Cluster, kind: str) -> Path:
    import hashlib

    from orbitlog.settings.user_directories import user_directory

    # Visible names may depend on the credentials.
    identity = f"{cluster.address}\n{cluster.access_key}\n{kind}"
    return user_directory("XDG_CACHE_HOME") / f"names-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def cached_names(cluster: Cluster, kind: str, ask: Callable[[Cluster, str], list[str]]) -> list[str]:
    """Return cached names, or call `ask` and cache its result; a cluster that does not answer has no names."""
    path = cache_path(cluster, kind)
    try:
        if time.time() - path.stat().st_mtime < CACHE_SECONDS:
            cached = json.loads(path.read_text(encoding="utf-8"))
            return [name for name in cached if isinstance(name, str)]
    except (OSError, ValueError):
        pass  # missing or damaged: ask the cluster
    try:
        names = ask(cluster, kind)[:_NAMES_MAX]
    except (OrbitlogError, OSError, TimeoutError, click.ClickException):
        names = []
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, json.dumps(names).encode(), is_durable=False)
    return names


def _ask(cluster: Cluster, kind: str) -> list[str]:
    import asyncio

    from orbitlog.cli.cluster_connection import run_with_admin
    from orbitlog.cli.cluster_names import all_groups, user_topics
    from orbitlog.client.admin.administration import Administration

    async def work(admin: Administration) -> list[str]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return user_topics(await admin.topics()) if kind == "topics" else await all_groups(admin)

    return run_with_admin(cluster, work)
