"""`orbitlog demo`: a guided tour with real servers, clients and Spark; every claim is verified while it runs."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from orbitlog.cli.tour.tour_report import TourReport
from orbitlog.cli.tour.tour_script import Tour
from orbitlog.cli.tour.tour_servers import TourServers
from orbitlog.cli.tour.tour_spark import why_no_spark

_ORDERS = 400


@click.command("demo")
@click.option(
    "--keep",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="New or empty directory for all files [a temporary directory].",
)
@click.option(
    "--orders",
    "order_count",
    type=click.IntRange(1, 100_000),
    default=_ORDERS,
    show_default=True,
    help="Orders that each of the four producers sends.",
)
@click.option("--no-spark", is_flag=True, help="Skip the Spark part, which also happens without Java.")
@click.option(
    "--svg", "picture", type=click.Path(dir_okay=False, path_type=Path), help="Also write the output as an SVG image."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as one JSON object at the end; lines go to stderr."
)
def command(*, directory: Path | None, order_count: int, no_spark: bool, picture: Path | None, as_json: bool) -> None:
    """Demonstrate the whole system in less than two minutes.

    Starts a name server, a broker and the console; several producers send orders, which are consumed in order; Spark
    dispatches, queries, exports and plots; the broker is killed and loses nothing; queues and index are deleted and
    rebuilt, byte for byte; access control refuses what is not allowed; a replica group loses its master and continues.
    Parts that need Java, etcd or an extra are skipped without it. Exit code 1 if a result is not as expected."""
    reason = "--no-spark was given" if no_spark else why_no_spark()
    directory = _directory(directory)
    report = TourReport(as_json)
    with _logging_to(directory / "tour.log"), TourServers(directory) as servers:
        tour = Tour(servers, directory, report, order_count=order_count, no_spark_reason=reason)
        tour.run()
    report.write_end(tour.places)
    if picture is not None:
        from orbitlog.cli.tour.tour_picture import draw_report

        draw_report(report, tour.places, picture)
    if not report.holds:
        click.get_current_context().exit(1)


def _directory(chosen: Path | None) -> Path:
    if chosen is None:
        return Path(tempfile.mkdtemp(prefix="orbitlog-demo-"))
    if chosen.exists() and any(chosen.iterdir()):
        raise click.UsageError(f"{chosen} is not empty; give a new directory")
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Log to a file while the block runs: clients warn, for example, about the killed broker."""
    handler = logging.FileHandler(path, encoding="utf-8")
    top = logging.getLogger("orbitlog")
    top.addHandler(handler)
    try:
        yield
    finally:
        top.removeHandler(handler)
        handler.close()
