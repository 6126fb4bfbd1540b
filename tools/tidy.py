"""Rules of the house that a linter does not know; tests/test_tidy.py runs each and proves that each can fail.

A rule takes a `Module` and names what breaks it, as `file:line: sentence`. The rules about the whole package or the
whole repository take all of their files at once.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
INIT_LINES_MAX = 40
ROOM_MODULES_MAX = 22
CLASS_ATTRIBUTES_MAX = 20

# Pure tables may be as long as what they list. None so far.
LONG_TABLES: frozenset[str] = frozenset()
# Classes with more attributes than that, as `path:class`; each waits for its split.
WIDE_CLASSES: frozenset[str] = frozenset()
# Where catching everything is the design: a loop or a request boundary that must outlive one failure.
MAY_CATCH_EVERYTHING: frozenset[str] = frozenset(
    (
        "client/consumer/group_consumer.py",  # any exception of a listener means that its message is redelivered
        "broker/runtime/background_loops.py",  # one failed step is logged, and the loop continues
        "storefiles/rocksdb/databases.py",  # the RocksDB binding raises plain Exception for a damaged database
        "remoting/connection.py",  # one failed close callback must not keep the others from running
        "remoting/incoming_requests.py",  # whatever a handler raises becomes the response to its request
    )
)
# Rooms whose code is a function of its bytes.
PURE_ROOMS = ("filters", "formats", "wire")
# Rooms that are also a library for others.
LIBRARY_ROOMS = ("client", "filters", "formats", "kernels", "settings", "store", "storefiles", "testing", "wire")
# Rooms whose code runs only when it is called: threads, waiting and the clock are the caller's.
STEPPED_ROOMS = ("store",)
MAY_PRINT = ("cli",)
PURE_THIRD_PARTY = frozenset(("backports", "compression", "lz4", "orjson"))
IMPURE_IMPORTS = frozenset(
    ("asyncio", "io", "mmap", "multiprocessing", "os", "random", "secrets", "select", "selectors", "shutil", "socket")
) | frozenset(("subprocess", "tempfile", "threading", "time"))
THREAD_NAMES = frozenset(("Thread", "Timer"))
IMPURE_NAMES = frozenset(("Path", "open"))
BANNED_MODULES = frozenset(("pickle", "marshal", "shelve", "dill", "cloudpickle"))
BANNED_CALLS = frozenset(("eval", "exec", "os.system", "os.popen"))
# Calls that create, change, remove or sync files by hand, past `Disk` and `atomic_file`.
RAW_FILE_CALLS = (
    frozenset(
        f"os.{name}"
        for name in ("open", "fsync", "fdatasync", "rename", "replace", "ftruncate", "truncate", "link", "pwrite")
    )
    | frozenset(
        f"os.{name}" for name in ("write", "unlink", "remove", "mkdir", "makedirs", "rmdir", "utime", "symlink")
    )
    | frozenset(f"shutil.{name}" for name in ("rmtree", "move", "copy", "copy2", "copyfile", "copytree"))
    | frozenset(("tempfile.mkstemp",))
)
RAW_PATH_METHODS = frozenset(("write_bytes", "write_text", "unlink", "rmdir", "mkdir", "hardlink_to", "symlink_to"))
MAY_CALL_FILES = frozenset(
    (
        "storefiles/disk.py",  # everything that changes a store
        "storefiles/confined/confined_disk.py",  # a Disk, one directory at a time
        "storefiles/confined/regular_files.py",  # how a Disk opens files
        "settings/atomic_file.py",  # small files elsewhere
        "cli/contexts.py",  # the user's settings
        "cli/main.py",  # /dev/null
        "cli/mqadmin/mq_groups.py",  # a report that a user asked for
        "cli/mqadmin/mq_messages.py",  # bodies that a user asked for, never through a link
        "cli/name_completion.py",  # a cache
        "cli/serve/dispatch_process.py",  # output of a process
        "cli/serve/serving.py",  # a server's log
        "cli/tour/cmd_demo.py",  # the directory of the tour
        "cli/tour/tour_derived.py",
        "cli/tour/tour_picture.py",
        "cli/tour/tour_servers.py",
        "client/admin/replay_record.py",  # a log of its own, synced line by line
        "client/consumer/local_offsets.py",  # offsets of broadcast consumers, on the client's machine
        "console/session/console_audit.py",  # a log of its own, synced line by line
        "doctor/convert/rocksdb_tables.py",  # a temporary copy that RocksDB may write to
        "nameserver/kv_configs.py",
        "pipeline/dispatch/dispatch_query.py",  # checkpoints of Spark, which no part of Orbitlog reads
        "pipeline/export/export_files.py",  # Parquet files in a lake
        "pipeline/export/export_job.py",
        "pipeline/export/export_plan.py",
        "pipeline/export/export_stream.py",
        "pipeline/export/iceberg_export.py",  # a version that only one writer may create
        "pipeline/export/parquet_export.py",
        "pipeline/runtime/shipping.py",  # the package itself, in a cache
        "pipeline/runtime/local_task_queue.py",  # claims of tasks that processes of one job share
        "pipeline/runtime/session.py",  # a temporary directory
        "pipeline/runtime/worker_setup.py",  # a mark in the cache of compiled kernels
    )
)
# Methods of text that take it apart, or ask what it contains.
SENTENCE_PARSERS = frozenset(
    ("startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "rfind", "index", "count")
) | frozenset(("removeprefix", "removesuffix", "splitlines"))
SENTENCE_NAMES = frozenset(("reason", "sentence", "remark", "notice", "advice"))
ERROR_NAMES = frozenset(("error", "exception", "cause"))
MAY_PARSE_SENTENCES = frozenset(
    (
        "cli/cluster_connection.py",  # a 4.9 broker's refusal has no code of its own
        "doctor/move/move_rows.py",  # whether a printed row has to name its subject
    )
)
EMPTY_WORDS = re.compile(r"(Manager|Utils?|Helpers?|Impl|Factory|Base)$|^(Default|Abstract|Base)(?=[A-Z])")
EMPTY_MODULE_NAMES = frozenset(("base", "common", "helper", "helpers", "misc", "util", "utils"))

# Put together here so that this very file does not break the rule.
_UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b")
_MACHINE_PATH = re.compile(r"(?<![\w.~$}>-])/(" + "|".join(("work", "root", "home", "Users")) + r")(?![\w-])")
_INDEX_HOSTS = ("py" + "pi.org", "pythonhosted" + ".org", "crates" + ".io", "npmjs" + ".org", "proxy.golang" + ".org")
_HOSTS = re.compile("|".join(map(re.escape, (*_INDEX_HOSTS, "maven" + ".org", "deb.debian" + ".org"))))
_NEIGHBOUR = "../" + "shared"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file of the package; `path` is relative to the package (`formats/records/message.py`)."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        return self.path.split("/")[0]

    @property
    def dotted(self) -> str:
        return ".".join(("orbitlog", *self.path.removesuffix(".py").removesuffix("/__init__").split("/")))

    def at(self, node: ast.expr | ast.stmt | ast.excepthandler, sentence: str) -> str:
        return f"{self.path}:{node.lineno}: {sentence}"


Rule = Callable[[Module], Iterator[str]]


def modules_below(package: Path) -> list[Module]:
    return [Module(path.relative_to(package).as_posix(), path.read_text()) for path in sorted(package.rglob("*.py"))]


# One module at a time


def module_length(module: Module) -> Iterator[str]:
    limit = INIT_LINES_MAX if module.path.endswith("__init__.py") else MODULE_LINES_MAX
    lines = len(module.text.splitlines())
    if lines > limit and module.path not in LONG_TABLES:
        yield f"{module.path}:1: {lines} lines, at most {limit}"


def function_length(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, FunctionNode) and (lines := function_lines(node)) > FUNCTION_LINES_MAX:
            yield module.at(node, f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")


def function_lines(function: FunctionNode) -> int:
    """Count the lines of a function or method: its signature and body, without decorators and docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or 0) - docstring.lineno + 1)


def class_width(module: Module) -> Iterator[str]:
    """Report classes with too many attributes."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef) or f"{module.path}:{node.name}" in WIDE_CLASSES:
            continue
        if (count := len(attributes_of(node))) > CLASS_ATTRIBUTES_MAX:
            yield module.at(node, f"{node.name} has {count} attributes, at most {CLASS_ATTRIBUTES_MAX}")


def attributes_of(class_node: ast.ClassDef) -> set[str]:
    """Collect the fields that a class declares and the attributes that its methods assign to `self`."""
    declared = {
        field.target.id
        for field in class_node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    assigned = {
        node.attr
        for node in ast.walk(class_node)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return declared | assigned


def head_docstring(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.path}:1: has no docstring that states its content"


def banned_calls(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in BANNED_CALLS:
            yield module.at(node, f"calls {name}")
        if name == "print" and module.room not in MAY_PRINT:
            yield module.at(node, "prints; only the command line does")
        if any(word.arg == "shell" and not is_false(word.value) for word in node.keywords):
            yield module.at(node, "starts a shell")


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def banned_imports(module: Module) -> Iterator[str]:
    for node, name in imported_modules(module):
        if name.split(".")[0] in BANNED_MODULES:
            yield module.at(node, f"imports {name}: bytes from outside would run as code")


def purity(module: Module) -> Iterator[str]:
    """In `formats` and `wire`: no files, sockets, clocks, chance or threads, and no third party but the codecs."""
    if module.room not in PURE_ROOMS:
        return
    for node, name in imported_modules(module):
        top = name.split(".")[0]
        if top in IMPURE_IMPORTS:
            yield module.at(node, f"imports {name} in a pure room")
        elif top not in sys.stdlib_module_names and top != "orbitlog" and top not in PURE_THIRD_PARTY:
            yield module.at(node, f"imports {name}, a third party, in a pure room")
    for place in ast.walk(module.tree):
        if isinstance(place, ast.Call) and ast.unparse(place.func).split(".")[-1] in IMPURE_NAMES:
            yield module.at(place, f"touches the disk with {ast.unparse(place.func)} in a pure room")
        elif isinstance(place, ast.Attribute) and place.attr in ("now", "utcnow", "today"):
            yield module.at(place, "asks the clock in a pure room")


def stepped(module: Module) -> Iterator[str]:
    """In `store`: no thread is started, and the `time` module is not used. Locks are allowed."""
    if module.room not in STEPPED_ROOMS:
        return
    for node, name in imported_modules(module):
        if name.split(".")[0] == "time":
            yield module.at(node, "imports time; take the clock or the wait from the caller")
    for used in ast.walk(module.tree):
        if isinstance(used, ast.ImportFrom) and used.module == "threading":
            if any(alias.name in THREAD_NAMES for alias in used.names):
                yield module.at(used, "imports a thread class; threads are the caller's")
        elif isinstance(used, ast.Attribute) and ast.unparse(used.value) == "threading" and used.attr in THREAD_NAMES:
            yield module.at(used, f"uses threading.{used.attr}; threads are the caller's")


def broad_except(module: Module) -> Iterator[str]:
    if module.path in MAY_CATCH_EVERYTHING:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and catches_everything(node):
            yield module.at(node, "catches everything")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("suppress", "contextlib.suppress"):
            if {"Exception", "BaseException"} & {ast.unparse(argument) for argument in node.args}:
                yield module.at(node, "suppresses everything")


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return bool({"Exception", "BaseException"} & {ast.unparse(kind) for kind in caught})


def empty_words(module: Module) -> Iterator[str]:
    if module.path.rsplit("/", 1)[-1].removesuffix(".py") in EMPTY_MODULE_NAMES:
        yield f"{module.path}:1: a module named after nothing in particular"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and (word := EMPTY_WORDS.search(node.name.lstrip("_"))):
            yield module.at(node, f"{node.name} says {word.group()} instead of what it is")


def sentences_as_data(module: Module) -> Iterator[str]:
    """Sentences are for people: a new wording of a reason or an error must not change what a program does."""
    if module.path in MAY_PARSE_SENTENCES:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Compare):
            parts = compared_by_words(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_search = ast.unparse(node.func.value) == "re" or node.func.attr in ("match", "search", "fullmatch")
            is_parsed = node.func.attr in SENTENCE_PARSERS and not is_layout(node)
            parts = [node.func.value] if is_parsed else list(node.args) if is_search else []
        else:
            continue
        if any(map(is_sentence, parts)):
            yield module.at(node, "decides by the words of a sentence; give the fact a field of its own")


def compared_by_words(node: ast.Compare) -> list[ast.expr]:
    """Return the operands whose words decide a comparison: containers of `in`, and what a literal text is equal to."""
    operands = [node.left, *node.comparators]
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        return operands[1:]
    texts = [part for part in operands if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value]
    return operands if texts else []


def is_layout(call: ast.Call) -> bool:
    """Return whether a call only takes a text apart into words or lines, to print it on one line."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    separator = call.args[0] if call.args else None
    is_newline = isinstance(separator, ast.Constant) and separator.value == "\n"
    return method == "splitlines" or (method == "split" and (separator is None or is_newline))


def is_sentence(node: ast.expr) -> bool:
    """Return whether an expression is a sentence: a variable or field with such a name, or the text of an error."""
    if isinstance(node, ast.Call):
        is_text = isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1
        return is_text and isinstance(node.args[0], ast.Name) and node.args[0].id in ERROR_NAMES
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in SENTENCE_NAMES


def raw_file_calls(module: Module) -> Iterator[str]:
    """Files of a store are written through `Disk`, or a power cut in them could not be tested."""
    if module.path in MAY_CALL_FILES or module.room == "testing":
        return
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        # `Path.replace` takes one argument, `str.replace` two.
        is_move = name.rpartition(".")[2] in ("rename", "replace") and "." in name and len(node.args) == 1
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr in RAW_PATH_METHODS
        if name in RAW_FILE_CALLS or is_method or (is_move and not node.keywords) or opens_for_writing(node):
            yield module.at(node, f"calls {name}; go through storefiles.disk or settings.atomic_file")


def opens_for_writing(call: ast.Call) -> bool:
    """Return whether a call of `open` has a mode that writes, or one of `mmap` an access other than reading."""
    name = ast.unparse(call.func)
    if name == "mmap.mmap":
        harmless = ("mmap.ACCESS_READ", "mmap.ACCESS_COPY")
        return not any(ast.unparse(keyword.value) in harmless for keyword in call.keywords)
    if name.rpartition(".")[2] != "open":
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    modes = [str(node.value) for node in given if isinstance(node, ast.Constant)]
    return any(re.fullmatch(r"[rwxabt+]{1,4}", mode) and set(mode) & set("wax+") for mode in modes)


def imported_modules(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node, absolute(module, node)


def absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.dotted.split(".")
    if not module.path.endswith("__init__.py"):
        package = package[:-1]
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, *([node.module] if node.module else [])])


MODULE_RULES: tuple[Rule, ...] = (
    module_length,
    function_length,
    class_width,
    head_docstring,
    banned_calls,
    banned_imports,
    purity,
    stepped,
    broad_except,
    empty_words,
    sentences_as_data,
    raw_file_calls,
)


# The package as a whole


def doubled_basenames(modules: Iterable[Module]) -> Iterator[str]:
    """A line of a traceback should name one place."""
    places = defaultdict(list)
    for module in modules:
        places[module.path.rsplit("/", 1)[-1]].append(module.path)
    for basename, paths in places.items():
        if len(paths) > 1 and basename not in ("__init__.py", "__main__.py"):
            yield f"{basename} stands more than once: {', '.join(paths)}"


def crowded_rooms(modules: Iterable[Module]) -> Iterator[str]:
    """Report directories with too many modules."""
    counts: dict[str, int] = defaultdict(int)
    for module in modules:
        directory, _, basename = module.path.rpartition("/")
        counts[directory] += basename != "__init__.py"
    for directory, count in counts.items():
        if count > ROOM_MODULES_MAX:
            yield f"{directory}: {count} modules, at most {ROOM_MODULES_MAX}; give it sub-rooms"


def dead_modules(modules: Iterable[Module], entry_points: Iterable[str], outside: Iterable[Module]) -> Iterator[str]:
    """Name modules that nothing imports and no entry point names.

    A room that is a library for others lives also by what is `outside` of the package: tests and benchmarks.
    """
    modules = list(modules)
    alive_inside = set(entry_points).union(*(names_used_by(module) - {module.dotted} for module in modules))
    alive_outside = alive_inside.union(*map(names_used_by, outside))
    for module in modules:
        alive = alive_outside if module.room in LIBRARY_ROOMS else alive_inside
        if module.dotted not in alive and not module.path.endswith(("__init__.py", "__main__.py")):
            yield f"{module.path}: nothing imports it"


def names_used_by(module: Module) -> set[str]:
    """Collect every dotted name that an import, or a string with the name of a module, could mean."""
    used = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = absolute(module, node)
            used |= {source} | {f"{source}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("orbitlog."):
            used.add(node.value.split(":")[0])
    return used


# Tests; paths are relative to `tests`

# Modules and fixtures that open sockets.
SOCKET_MODULES = frozenset(("socket", "socketserver", "orbitlog.testing.running_broker")) | frozenset(
    f"tests.support.{name}" for name in ("broker_bytes", "broker_desk", "hot_path", "timed_broker")
)
SOCKET_NAMES = frozenset(("create_server", "open_connection", "orbitlog_broker", "start_server"))


TESTS_OF_BENCHMARKS = frozenset(("test_compare_rows.py",))


def borrowed_helpers(test: Module) -> Iterator[str]:
    """Find helpers imported from another test file or from benchmarks: shared ones belong to a module of their own.

    A whole test module may be imported to run its tests in another setting (`from tests.interop import test_sends`).
    """
    for node, name in imported_modules(test):
        if name.startswith("tests.") and name.rsplit(".", 1)[-1].startswith("test_"):
            yield test.at(node, f"imports from {name}; move the helper to tests/support")
        elif name.split(".")[0] == "benchmarks" and test.path not in TESTS_OF_BENCHMARKS:
            yield test.at(node, f"imports from {name}; tests do not depend on benchmarks")


def sleeping_unit_tests(test: Module) -> Iterator[str]:
    """Find `sleep` with another argument than 0 below tests/unit; `sleep(0)` only yields to the event loop."""
    if test.room != "unit":
        return
    for node in ast.walk(test.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "sleep":
            if not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0):
                yield test.at(node, "sleeps; wait for an event, or set the time")


def connected_unit_tests(test: Module) -> Iterator[str]:
    """Find sockets below tests/unit, opened directly or by a helper."""
    if test.room != "unit":
        return
    for node, name in imported_modules(test):
        if name in SOCKET_MODULES:
            yield test.at(node, f"imports {name}, which opens sockets; move the test to tests/integration")
    for used in ast.walk(test.tree):
        name = used.attr if isinstance(used, ast.Attribute) else used.arg if isinstance(used, ast.arg) else ""
        if name in SOCKET_NAMES and isinstance(used, ast.Attribute | ast.arg):
            yield f"{test.path}:{used.lineno}: uses {name}, which opens sockets; move the test to tests/integration"


TEST_RULES: tuple[Rule, ...] = (borrowed_helpers, sleeping_unit_tests, connected_unit_tests)


# Any text in the repository


def unfinished(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := _UNFINISHED.search(line):
            yield f"{path}:{number}: {found.group()} marks unfinished work"


def foreign_places(path: str, text: str) -> Iterator[str]:
    """Find what is true of one machine only: home directories, package hosts, neighbours of the repository."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (_MACHINE_PATH, _HOSTS):
            if found := pattern.search(line):
                yield f"{path}:{number}: names {found.group()}"
        if _NEIGHBOUR in line:
            yield f"{path}:{number}: names a directory outside the repository"
