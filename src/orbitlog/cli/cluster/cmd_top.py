"""`orbitlog top`: a live view of a cluster: rates, lag, memory and slow requests."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import address_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.sampling.sampled_numbers import ClusterSample

# Offsets of groups are the most expensive table: they may take this share of the time.
_PROGRESS_SHARE = 0.2
_SLOW_ROWS = 5


@click.command(
    "top",
    help="""Show rates, lag, memory and slow requests of a cluster, refreshed each second.

    Works for Orbitlog and for Apache's brokers, which report neither their memory nor single slow requests. Without a
    terminal, or with --once, it prints one view and ends; --json prints one object for each view.""",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two views.",
)
@click.option("--once", is_flag=True, help="Print one view, with the rates of one interval, and end.")
@click.option("--count", type=click.IntRange(1), help="End after this number of views.")
@click.option("--groups", type=click.IntRange(0, 1000), default=15, show_default=True, help="Maximum of groups shown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each view.")
@address_options
def command(*, interval_s: float, once: bool, count: int | None, groups: int, as_json: bool, cluster: Cluster) -> None:
    is_live = sys.stdout.isatty() and not as_json and not once
    views_max = 1 if once or (not is_live and not as_json and count is None) else count

    async def work(admin: Administration) -> None:
        import asyncio

        from orbitlog.cli.cluster.top_screen import TopScreen
        from orbitlog.client.sampling.cluster_sampler import ClusterSampler, SamplerLimits

        sampler = ClusterSampler(admin, SamplerLimits(details=False))
        loop = asyncio.get_running_loop()
        before: ClusterSample | None = await sampler.sample()
        progress_s, next_progress_s, shown = sampler.counts.round_seconds, 0.0, 0
        with TopScreen(is_live=is_live) as screen:
            while views_max is None or shown < views_max:
                await asyncio.sleep(interval_s)
                assert before is not None
                with_progress = loop.time() >= next_progress_s
                started = loop.time()
                sample = await sampler.sample(with_progress=with_progress)
                if with_progress:
                    progress_s = loop.time() - started
                    next_progress_s = loop.time() + progress_s / _PROGRESS_SHARE - interval_s
                else:
                    sample.progress = before.progress
                view = _view(sample, before, groups, has_new_lag=with_progress)
                _show(view, screen, as_json=as_json)
                before, shown = sample, shown + 1

    run_with_admin(cluster, work)


def _view(sample: ClusterSample, before: ClusterSample, groups: int, *, has_new_lag: bool) -> dict[str, Any]:
    from orbitlog.client.sampling import cluster_rates

    return {
        "timestampMs": sample.sampled_ms,
        "brokers": cluster_rates.broker_rows(sample, before),
        "groups": cluster_rates.group_rows(sample, before if has_new_lag else None, groups),
        "slowRequests": cluster_rates.slow_rows(sample, _SLOW_ROWS),
    }


def _show(view: Mapping[str, Any], screen: Any, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(view, ensure_ascii=False, separators=(",", ":")))
        sys.stdout.flush()
    else:
        tables: Sequence[tuple[str, str]] = (("brokers", ""), ("groups", "lag"), ("slowRequests", "slow requests"))
        screen.show(view, tables)
