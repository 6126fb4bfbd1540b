"""Server commands: shared options, log file, signals, and the ready line."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_access import check_start
from orbitlog.broker.runtime.broker_settings import BrokerSettings, load_broker_settings
from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.log_lines import LineRate, LogFile, RepeatLimit, line_formatter
from orbitlog.errors import OrbitlogError
from orbitlog.formats import store_tree as tree
from orbitlog.observe.metrics_settings import (
    EXPORTER,
    LOG_BOTH,
    LOG_FILE,
    LOG_FORMAT,
    LOG_JSON,
    LOG_STDERR,
    LOG_TEXT,
    LOG_TO,
    PROM,
    PROM_PORT,
    check_export,
)
from orbitlog.settings.atomic_file import create_directory
from orbitlog.settings.listen_exposure import join_address
from orbitlog.settings.setting import SettingError

if TYPE_CHECKING:
    from orbitlog.cli.serve.service_notify import ServiceNotifier

Command = TypeVar("Command", bound=Callable[..., object])

LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_FILES_KEPT = 5
_LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_STARTED_S = time.perf_counter()
_INTERRUPTED = 130
_COLLECT_AFTER = (5_000, 2, 10)
"""Thresholds of the generations: a collection of new objects takes a few milliseconds."""
_YOUNGEST = 0
THREAD_SWITCH_SECONDS = 0.0005
LONG_COLLECTION_SECONDS = 0.004
_RECOVERY_SECONDS = 2.0
_COLLECTOR_DELAY_SECONDS = 1.0
_OPEN_FILES_WANTED = 65_536
_REPEATS_SECONDS = 10.0
ENDS_WITH_INPUT = "ORBITLOG_ENDS_WITH_INPUT"
"""Environment variable that makes a server stop when its standard input ends: the parent process has exited."""

log = logging.getLogger(__name__)


class Served(Protocol):
    """A server; `stop` is also called if `start` failed half-way."""

    async def start(self) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
        """Start; return the fields of the ready line, or of each of several."""
        ...

    async def stop(self) -> None: ...


config_option = click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file: Java's broker.conf.",
)
set_option = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="One setting; overrides --config and ORBITLOG_SET_KEY in the environment.",
)
metrics_port_option = click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve metrics and health over HTTP at this port, 0 for any free port (metricsExporterType=PROM).",
)
console_port_option = click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    help="Serve the web console at this port, 0 for any free port; it is a process of its own.",
)
console_option = click.option(
    "--console",
    "console_port",
    flag_value=8082,
    type=click.IntRange(0, 65535),
    help="Serve the web console at port 8082: --console-port 8082.",
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice((LOG_TEXT, LOG_JSON)),
    help="Format of log lines, in the file and on stderr: text, or one JSON object a line (logFormat) [text].",
)
log_to_option = click.option(
    "--log-to",
    type=click.Choice((LOG_FILE, LOG_STDERR, LOG_BOTH)),
    help="Write the log to a file with warnings on stderr, to stderr only, or to both (logTo) [file].",
)
print_settings_option = click.option("--print-settings", is_flag=True, help="Print the effective settings and exit.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the ready line as a JSON object.")


def metrics_texts(port: int | None) -> dict[str, str]:
    """Return the settings that the option --metrics-port stands for."""
    return {} if port is None else {EXPORTER.key: PROM, PROM_PORT.key: str(port)}


def log_texts(log_format: str | None, log_to: str | None) -> dict[str, str]:
    """Return the settings that the options --log-format and --log-to stand for."""
    given = {LOG_FORMAT.key: log_format, LOG_TO.key: log_to}
    return {key: text for key, text in given.items() if text is not None}


def metrics_fact(address: tuple[str, int] | None) -> dict[str, str]:
    """Return the field of the ready line about metrics; none if they are not served over HTTP."""
    return {} if address is None else {"metrics": f"http://{joined(address)}/metrics"}


# A store may have its CommitLog in another directory, or only a DLedger log.
_STORE_ENTRIES = (tree.COMMITLOG, tree.CONSUMEQUEUE, tree.CONFIG, tree.CHECKPOINT)


def default_store() -> Path:
    """Return the default directory of a store."""
    from orbitlog.settings.user_directories import user_directory

    return user_directory("XDG_DATA_HOME") / "store"


def read_broker_settings(
    config_path: Path | None, assignments: Iterable[str], given: Mapping[str, str | None]
) -> BrokerSettings:
    """Load the settings; options of the command (`given`) override all others.

    Raise `WrongUse` for an invalid setting, before anything is written; print settings with side effects on stderr.
    """
    options = {key: text for key, text in given.items() if text is not None}
    try:
        settings = check_start(load_broker_settings(config_path, assignments, os.environ, options))
        check_export(settings.__getitem__)
    except (SettingError, ValueError) as error:
        raise WrongUse(str(error)) from error
    for complaint in settings.complaints:
        if complaint.sentence:
            click.echo(f"orbitlog: {complaint.sentence}", err=True)
    return settings


def store_of(settings: BrokerSettings, config_path: Path | None) -> Path:
    """Return the directory of the store; raise `WrongUse` if the settings probably mean another one.

    That is Java's default store if none is configured, or a relative path in another working directory.
    """
    if settings[keys.STORE_ROOT]:
        root = Path(settings[keys.STORE_ROOT])
        if not root.is_absolute() and not root.exists():
            raise WrongUse(
                f"storePathRootDir={root} is relative to the working directory, and {root.absolute()} does not exist;"
                " write the full path, or start the broker in the directory where the store is"
            )
        return root
    java_default = Path.home() / "store"
    if config_path is not None and any((java_default / name).exists() for name in _STORE_ENTRIES):
        raise WrongUse(
            f"storePathRootDir is missing, and Java's default {java_default} contains a store, but Orbitlog's default"
            f" is {default_store()}; add storePathRootDir to {config_path}, or give --store"
        )
    return default_store().expanduser()


def show_settings(settings: BrokerSettings) -> None:
    """Print the settings in the format of a settings file."""
    for key, text in sorted(settings.effective().items()):
        click.echo(f"{key}={text}")


class ServerLog:
    """Server log: by default warnings go to stderr, and everything to a file once that is open.

    Nothing may be written below the store before it is accepted, so records are kept in memory until the file is
    opened. A refused store stays unchanged.
    """

    def __init__(self, directory: Path, name: str, log_format: str = LOG_TEXT, log_to: str = LOG_FILE) -> None:
        self._file = directory / f"{name}.log"
        self._format = log_format
        self._to = log_to
        self._held = MemoryHandler(0, flushLevel=logging.CRITICAL + 1)
        terminal = logging.StreamHandler(sys.stderr)
        is_whole = log_to != LOG_FILE
        terminal.setFormatter(line_formatter(log_format, _LINE if is_whole else "orbitlog: %(message)s"))
        terminal.addFilter(LineRate())
        terminal.setLevel(logging.INFO if is_whole else logging.WARNING)
        self._limit = RepeatLimit([terminal] if log_to == LOG_STDERR else [self._held, terminal])
        top = logging.getLogger("orbitlog")
        top.setLevel(logging.INFO)
        top.propagate = False
        top.handlers[:] = [self._limit]
        self._is_open = log_to == LOG_STDERR

    @property
    def path(self) -> Path | None:
        """The file; None with `stderr`."""
        return None if self._to == LOG_STDERR else self._file

    @property
    def fact(self) -> dict[str, str]:
        """The field of the ready line about the file."""
        return {} if self.path is None else {"log": str(self.path)}

    def open(self) -> None:
        """Create the file, which is rotated by size, and write the records held in memory; later calls do nothing."""
        if self._is_open:
            return
        self._is_open = True
        create_directory(self._file.parent)
        to_file = LogFile(self._file, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES_KEPT, encoding="utf-8", delay=True)
        to_file.setFormatter(line_formatter(self._format, _LINE))
        # The file handler is installed before the held records are flushed: a record logged in between by another
        # thread is written twice rather than lost.
        self._limit.targets[0] = to_file
        self._held.setTarget(to_file)
        self._held.close()


def log_settings(settings: BrokerSettings) -> None:
    """Log settings that have no effect or a side effect."""
    harmless = [complaint.key for complaint in settings.complaints if not complaint.sentence]
    if harmless:
        log.info("settings without effect: %s", ", ".join(harmless))
    for complaint in settings.complaints:
        if complaint.sentence:
            log.info("%s", complaint.sentence)


class RecoveryProgress:
    """Logs the recovery of a large store every two seconds: to stderr, and to the file when the store is accepted."""

    def __init__(self) -> None:
        self._logged_s = time.monotonic()

    def __call__(self, done_bytes: int, all_bytes: int) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= _RECOVERY_SECONDS:
            self._logged_s = now_s
            log.warning("recovering the store: scanned %d of %d MiB of the log", done_bytes >> 20, all_bytes >> 20)


def serve(make: Callable[[], Served], *, as_json: bool) -> None:
    """Run a server until TERM or INT; a second signal ends the process at once."""
    raise_open_files()
    # uvloop takes the interpreter lock for each callback. While another thread encodes a table, it would wait for
    # Python's default of 5 ms every time.
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(make(), as_json))


def raise_open_files() -> None:
    """Raise the limit of open files to the allowed maximum: with a low limit a store keeps reopening files."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_WANTED)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError) as error:  # some systems enforce a lower limit than they report
        log.warning("could not raise the limit of %d open files: %s", soft, error)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _reduce_collections() -> None:
    """Freeze objects that live as long as the server, and collect garbage in small portions.

    Requests create no reference cycles, and each collection would delay responses.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.callbacks.append(ShortCollections())


class ShortCollections:
    """Freezes the objects that a long collection kept, so that later ones do not look at them again.

    A full collection with a hundred thousand topics takes a tenth of a second, and would repeat while tables grow.
    """

    def __init__(self) -> None:
        self._started_s = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] == _YOUNGEST:
            return
        if phase == "start":
            self._started_s = time.perf_counter()
        elif time.perf_counter() - self._started_s >= LONG_COLLECTION_SECONDS:
            gc.freeze()


async def _serve(served: Served, as_json: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_now() -> None:
        if stopped.is_set():
            os._exit(_INTERRUPTED)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_now)
    if os.environ.get(ENDS_WITH_INPUT):
        loop.add_reader(sys.stdin.fileno(), _stop_at_end_of_input, loop, stopped)
    notifier = _service_notifier()
    try:
        facts = await _started(served)
        for fields in [facts] if isinstance(facts, Mapping) else facts:
            print_ready(fields, as_json)
        if notifier is not None:
            notifier.ready()
        # Deferred: clients that waited for the ready line send their first requests now.
        loop.call_later(_COLLECTOR_DELAY_SECONDS, _reduce_collections)
        _report_repeats(loop)
        await stopped.wait()
        log.info("stopping")
        if notifier is not None:
            notifier.stopping()
    finally:
        await served.stop()
    log.info("stopped")


def _report_repeats(loop: asyncio.AbstractEventLoop) -> None:
    """Log the number of repeated lines that were left out, also if no further line follows."""
    for handler in logging.getLogger("orbitlog").handlers:
        if isinstance(handler, RepeatLimit):
            handler.report(time.time())
    loop.call_later(_REPEATS_SECONDS, _report_repeats, loop)


def _service_notifier() -> ServiceNotifier | None:
    """Return the notifier of the service manager; None if none started this process."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    from orbitlog.cli.serve.service_notify import ServiceNotifier

    return ServiceNotifier(os.environ)


def _stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stopped.set()


async def _started(served: Served) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
    try:
        return await served.start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OrbitlogError(
                f"{error.strerror}; stop the process that listens there, or choose another port"
            ) from error
        raise


def print_ready(facts: Mapping[str, str], as_json: bool) -> None:
    """Print the ready line: clients can connect."""
    seconds = time.perf_counter() - _STARTED_S
    if as_json:
        click.echo(json.dumps({"ready": True, **facts, "seconds": round(seconds, 3)}, separators=(",", ":")))
    else:
        click.echo(" ".join(("ready", *(f"{name}={value}" for name, value in facts.items()), f"seconds={seconds:.3f}")))
    sys.stdout.flush()
    log.info("ready %s after %.3f s", dict(facts), seconds)


def joined(address: tuple[str, int]) -> str:
    """Return `host:port`, with an IPv6 host in brackets."""
    return join_address(*address)
