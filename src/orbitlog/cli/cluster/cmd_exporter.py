"""`orbitlog exporter`: serves metrics of any RocketMQ cluster under the names of rocketmq-exporter."""

from __future__ import annotations

import json
import logging
import signal
from typing import TYPE_CHECKING

import click

from orbitlog.cli.cluster.cluster_options import address_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.sampling.cluster_sampler import ClusterSampler
    from orbitlog.client.sampling.exporter_families import ExporterFamilies

log = logging.getLogger(__name__)


@click.command(
    "exporter",
    help="""Serve metrics of a running cluster under the names of rocketmq-exporter.

    Works for Apache's brokers of 4.x and 5.x and for Orbitlog. Polls the brokers in rounds and prints one line when
    metrics can be collected. Rates of topics and groups need requests of their own: if a round has more of them than
    --max-requests, the rest follows in later rounds, and orbitlog_exporter_postponed has their number.""",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen address; 0.0.0.0 for all interfaces.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5557, show_default=True, help="Listen port, 0 for any free port."
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(1, 3600),
    default=15,
    show_default=True,
    help="Seconds from the start of a round to that of the next one.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(1, 1_000_000),
    default=2_000,
    show_default=True,
    help="Maximum requests of a round for single topics, groups and clients.",
)
@click.option(
    "--max-series",
    type=click.IntRange(1, 1_000_000),
    default=50_000,
    show_default=True,
    help="Maximum series of one metric; orbitlog_series_dropped_total counts the rest.",
)
@click.option("--client-metrics/--no-client-metrics", default=True, help="Include metrics of single consumers.")
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as a JSON object.")
@address_options
def command(
    *,
    host: str,
    port: int,
    interval_s: float,
    max_requests: int,
    max_series: int,
    client_metrics: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    async def work(admin: Administration) -> None:
        import asyncio

        from orbitlog.client.sampling.cluster_sampler import ClusterSampler, SamplerLimits
        from orbitlog.client.sampling.exporter_families import ExporterFamilies
        from orbitlog.observe.conditions import Conditions
        from orbitlog.observe.exposition import Exposition
        from orbitlog.observe.http_listener import HttpListener
        from orbitlog.observe.pages import metrics_and_health

        sampler = ClusterSampler(admin, SamplerLimits(max_requests, clients=client_metrics))
        families = ExporterFamilies(sampler.counts)
        await _run_round(sampler, families)  # a wrong address ends the command here
        problems: list[str] = []
        exposition = Exposition((families.read,), "", max_series)
        listener = HttpListener(metrics_and_health(exposition, lambda: problems, Conditions()), host, port)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await listener.start()
        _print_ready(listener.address, as_json)
        tasks = [
            asyncio.create_task(_run_rounds(sampler, families, problems, interval_s)),
            asyncio.create_task(stopped.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await listener.stop()

    run_with_admin(cluster, work)


async def _run_round(sampler: ClusterSampler, families: ExporterFamilies) -> None:
    families.sample = await sampler.sample()


async def _run_rounds(
    sampler: ClusterSampler, families: ExporterFamilies, problems: list[str], interval_s: float
) -> bool:
    """Run rounds until cancelled; a round that takes longer than the interval is followed by the next at once."""
    import asyncio

    from orbitlog.errors import OrbitlogError

    loop = asyncio.get_running_loop()
    next_s = loop.time() + interval_s
    while True:
        await asyncio.sleep(max(next_s - loop.time(), 0))
        next_s = loop.time() + interval_s
        try:
            await _run_round(sampler, families)
            problems.clear()
        except OrbitlogError as error:
            log.error("could not poll the cluster: %s", error)
            problems[:] = ["no name server answered the last round"]


def _print_ready(address: tuple[str, int], as_json: bool) -> None:
    host, port = address
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    click.echo(json.dumps({"ready": True, "metrics": url}) if as_json else f"ready metrics={url}")
