"""Options of commands on lake tables: the location of a table, and its Iceberg catalog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])


def parse_location(_: click.Context, parameter: click.Parameter, text: str) -> Path | str:
    """Return a local directory as a path; keep a URI as it is."""
    if "://" in text:
        return text
    path = Path(text).absolute()
    if path.is_file():
        raise click.BadParameter(f"{text!r} is a file, not a directory", param=parameter)
    return path


def parse_new_location(context: click.Context, parameter: click.Parameter, text: str | None) -> Path | str | None:
    """Return a local directory that does not exist yet as a path; keep a URI as it is."""
    if text is None:
        return None
    if "://" not in text and Path(text).exists():
        raise click.UsageError(f"{text} exists; give a new directory")
    return parse_location(context, parameter, text)


def catalog_options(command: Command) -> Command:
    """Add --catalog-table and --catalog; the command receives `catalog_table` and `catalog_properties`."""
    table = click.option(
        "--catalog-table", metavar="NAMESPACE.NAME", help="Table of an Iceberg catalog; its files are in the directory."
    )
    properties = click.option(
        "--catalog",
        "catalog_properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_properties,
        help="Property of that catalog, as of pyiceberg: type=sql, uri=sqlite:///catalog.db; repeatable.",
    )
    return table(properties(command))


def chosen_catalog(table: str | None, properties: tuple[tuple[str, str], ...]) -> Any:
    """Return the catalog that is given, None if none is."""
    from orbitlog.pipeline.export.iceberg_export import IcebergCatalog

    if table is None and not properties:
        return None
    if table is None or not properties or not table.rpartition(".")[0]:
        raise click.UsageError("a catalog needs --catalog-table NAMESPACE.NAME and at least one --catalog KEY=VALUE")
    return IcebergCatalog(table, properties)


def _properties(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = [text.partition("=") for text in given]
    for text, (key, equals, _value) in zip(given, pairs, strict=True):
        if not key or not equals:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param=parameter)
    return tuple((key, value) for key, _equals, value in pairs)
