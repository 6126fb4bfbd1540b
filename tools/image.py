"""Images of Orbitlog: build them with buildah from deploy/image/Containerfile, examine them, and run them with runc.

usage: image.py [--record] [slim|full]...       default: both

Each is built twice; the two digests must be equal. --record writes the sizes to deploy/image/sizes.json.

Needs root, buildah, runc and debootstrap, and no registry: the base is made of Debian's packages (tools/image_base).
Everything is kept below build/images: bases, storage, and a summary of each image as NAME.json.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "images"
CONTAINERFILE = ROOT / "deploy" / "image" / "Containerfile"
NEEDED = {"buildah": "buildah", "runc": "runc", "debootstrap": "debootstrap"}
VARIANTS = {"slim": "console", "full": "console,fast,rocksdb,otel,grpc,plot"}
SIZES = ROOT / "deploy" / "image" / "sizes.json"
USER_ID = 10001
DRIVER = os.environ.get("STORAGE_DRIVER", "overlay")  # vfs works everywhere, and copies all files for each layer
_CA_BUNDLE = Path("/etc/ssl/certs")
_PIP_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_DEFAULT_TIMEOUT")
_SECRET_NAMES = re.compile(r"(^|/)(\.netrc|\.pypirc|pip\.conf|id_(rsa|ed25519|ecdsa)|\.git|\.env|\.aws|\.docker)(/|$)")
_SECRET_TEXTS = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{64}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    rb"|\bglpat-[A-Za-z0-9_-]{20}\b|\bxox[baprs]-[0-9A-Za-z-]{20,}|https?://[^\s/:@\"'<>]+:[^\s/@\"'<>{}%$]+@[a-z0-9.-]+"
)


class Published(NamedTuple):
    """Texts that look like secrets and are published in files of a package, each as it is or as its SHA-256."""

    path: re.Pattern[str]
    texts: frozenset[bytes]
    reason: str


def _of_pyarrow(path: str, text: bytes) -> Published:
    pattern = rf"/opt/orbitlog/lib/python3\.\d+/site-packages/pyarrow/{path}"
    return Published(re.compile(pattern), frozenset((text,)), "an example of a proxy's URL in the documentation of S3")


PUBLISHED = (
    Published(
        re.compile(r"/usr/lib/[\w-]+/libgnutls\.so\.30[.\d]*"),
        frozenset(
            (
                b"15f8b684d2b47b0c75c09871fa70955964c7dbca3a52fda3603e31f634a56388",
                b"c2ad900efef1ef4732b15f2c8008f9e19bf3fbcd2dfd00ead476efd67557d4d0",
                b"0387204120ed2a705a0a404267746759edc2841de5824d2f699527d80874c199",
                b"8938474b77fb9e998f950c2e77359e8fe4523f9860101f1c4de073d4eafb9670",
                b"ffe872bda34ec32e36fb46befe584f99bce76068d184deabfa686fde88bf72a4",
                b"9e3719bdae6eb8197761285891554b9a94542695c5eae839e5d50d55c2a729c9",
            )
        ),
        "private keys of the self-test of the library",
    ),
    _of_pyarrow(r"_s3fs\.pyx", b"http://username:password@localhost"),
    _of_pyarrow(r"_s3fs\.cpython-[\w-]+\.so", b"http://username:password@localhost"),
    _of_pyarrow(r"include/arrow/filesystem/s3fs\.h", b"http://username:password@host"),
)


class ImageError(Exception):
    """An image could not be built or is not as required; the message has the reason and what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """Summary of a built image."""

    name: str
    image_id: str
    digest: str
    size_bytes: int
    """Bytes of the unpacked files."""
    compressed_bytes: int
    """Bytes of the layers, as a registry stores them."""


def missing_tools() -> str | None:
    """Return why images cannot be built on this machine, or None."""
    if os.geteuid() != 0:
        return "images are built as root here: debootstrap and chroot need it"
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    return f"{', '.join(missing)} not installed: apt-get install {' '.join(missing)}" if missing else None


def run(*command: str, **environment: str) -> str:
    """Run a command; return its output, or raise `ImageError` with the end of what it printed."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ImageError(f"{command[0]} {command[1]} ended with {done.returncode}:\n{tail}")
    return done.stdout


def buildah(*words: str) -> str:
    storage = ("--root", str(PLACE / "storage"), "--runroot", str(PLACE / "run"), "--storage-driver", DRIVER)
    return run("buildah", *storage, *words, BUILDAH_ISOLATION="chroot")


def make_bases() -> None:
    """Import the two bases, made of Debian's packages once."""
    if not all((PLACE / f"{name}.tar").exists() for name in ("build", "run")):
        run(str(ROOT / "tools" / "image_base"), str(PLACE))
    for name in ("build", "run"):
        tag = f"localhost/orbitlog-base:{name}"
        if buildah("images", "--quiet", "--filter", f"reference={tag}"):
            continue
        container = buildah("from", "scratch").strip()
        buildah("add", "--quiet", container, str(PLACE / f"{name}.tar"), "/")
        buildah("commit", "--quiet", "--timestamp", "0", container, tag)
        buildah("rm", container)


def git(*words: str) -> str:
    return run("git", *words).strip()


def build_words(variant: str) -> list[str]:
    """Return the options of `buildah build` for a variant of this commit."""
    epoch = git("log", "-1", "--format=%ct")
    arguments = {
        "BUILD_BASE": "localhost/orbitlog-base:build",
        "BASE": "localhost/orbitlog-base:run",
        "EXTRAS": VARIANTS[variant],
        "SOURCE_DATE_EPOCH": epoch,
        "VERSION": version(),
        "REVISION": git("rev-parse", "HEAD"),
        "TITLE": f"orbitlog-{variant}",
    }
    words = ["--format", "docker", "--timestamp", epoch, "--no-cache", "--pull-never", "--file", str(CONTAINERFILE)]
    for name, value in arguments.items():
        words += ["--build-arg", f"{name}={value}"]
    if _CA_BUNDLE.is_dir():
        words += ["--volume", f"{_CA_BUNDLE}:{_CA_BUNDLE}:ro"]
    for name in _PIP_VARIABLES:
        # Passed as an argument of the build, which no layer and no environment of the image keeps.
        if os.environ.get(name):
            words += ["--build-arg", f"{name}={os.environ[name]}"]
    return words


def version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "src/orbitlog/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise ImageError("src/orbitlog/__init__.py has no __version__")
    return found[1]


def build(variant: str) -> Image:
    """Build one variant; return its summary."""
    name = f"localhost/orbitlog:{variant}"
    buildah("build", *build_words(variant), "--tag", name, str(ROOT))
    return stripped(variant, name)


def stripped(variant: str, name: str) -> Image:
    """Replace the image by one without the names of the build's container, which differ between equal builds."""
    pushed = PLACE / f"{variant}.layers"
    shutil.rmtree(pushed, ignore_errors=True)
    buildah("push", "--quiet", name, f"dir:{pushed}")
    digest = strip_container(pushed)
    manifest = json.loads((pushed / "manifest.json").read_text())
    pulled = buildah("pull", "--quiet", f"dir:{pushed}").split()[-1]
    buildah("tag", pulled, f"localhost/orbitlog:{variant}")
    shutil.rmtree(pushed)
    with mounted(variant) as root:
        unpacked = sum(path.lstat().st_size for path in files_below(root))
    compressed = sum(layer["size"] for layer in manifest["layers"])
    return Image(f"localhost/orbitlog:{variant}", manifest["config"]["digest"], digest, unpacked, compressed)


def strip_container(pushed: Path) -> str:
    """Remove container id and host name from the configuration in a `dir:` image; return the manifest's digest."""
    manifest = json.loads((pushed / "manifest.json").read_text())
    blob = pushed / manifest["config"]["digest"].removeprefix("sha256:")
    config = json.loads(blob.read_text())
    config.pop("container", None)
    for part in ("config", "container_config"):
        config.get(part, {}).pop("Hostname", None)
    content = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    blob.unlink()
    digest = hashlib.sha256(content).hexdigest()
    (pushed / digest).write_bytes(content)
    manifest["config"] |= {"digest": f"sha256:{digest}", "size": len(content)}
    written = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    (pushed / "manifest.json").write_bytes(written)
    return f"sha256:{hashlib.sha256(written).hexdigest()}"


class mounted:
    """Context manager: yields the directory with the files of an image."""

    def __init__(self, variant: str) -> None:
        self._name = f"localhost/orbitlog:{variant}"
        self._container = ""

    def __enter__(self) -> Path:
        self._container = buildah("from", "--pull-never", self._name).strip()
        return Path(buildah("mount", self._container).strip())

    def __exit__(self, *_: object) -> None:
        buildah("umount", self._container)
        buildah("rm", self._container)


def files_below(root: Path) -> Iterator[Path]:
    for directory, directories, names in os.walk(root):
        for name in (*names, *directories):
            yield Path(directory, name)


def findings(root: Path) -> Iterator[str]:
    """Yield what must not be in an image: setuid and world-writable files, secrets."""
    for path in files_below(root):
        shown = f"/{path.relative_to(root)}"
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o6000:
            yield f"{shown}: setuid or setgid"
        is_shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & stat.S_IWOTH and not is_shared:
            yield f"{shown}: writable by every user"
        if _SECRET_NAMES.search(shown):
            yield f"{shown}: a name of files with secrets"
        if stat.S_ISREG(status.st_mode) and status.st_size:
            for position in secrets_of(path, shown):
                yield f"{shown}: looks like a secret at byte {position}"


def secrets_of(path: Path, shown: str) -> Iterator[int]:
    """Yield the positions of texts that look like secrets in a file, without those that `PUBLISHED` allows there."""
    allowed = frozenset[bytes]().union(*(entry.texts for entry in PUBLISHED if entry.path.fullmatch(shown)))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for found in _SECRET_TEXTS.finditer(content):
            if not {found[0], hashlib.sha256(found[0]).hexdigest().encode()} & allowed:
                yield found.start()


def config_of(variant: str) -> dict[str, Any]:
    """Return the configuration that the image carries, with its history."""
    described: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", f"localhost/orbitlog:{variant}"))
    return described["Docker"]  # type: ignore[no-any-return]


def config_findings(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield secrets, index hosts and paths of this machine in the configuration of an image."""
    text = json.dumps(config)
    if _SECRET_TEXTS.search(text.encode()):
        yield "the configuration contains a secret"
    for forbidden in (*_PIP_VARIABLES, str(ROOT), "https_proxy", "HTTPS_PROXY"):
        if forbidden in text:
            yield f"the configuration contains {forbidden}"


def runtime_spec(root: Path, words: Sequence[str], data: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a runc configuration: the image's user, no capabilities, root read-only, network of the host."""
    mounts = [
        ("/proc", "proc", "proc", ["nosuid", "noexec", "nodev"]),
        ("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/shm", "tmpfs", "shm", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),  # noqa: S108
        ("/tmp", "tmpfs", "tmpfs", ["nosuid", "nodev", "mode=1777", "size=65536k"]),  # noqa: S108
        ("/var/lib/orbitlog", "bind", str(data), ["rbind", "rw", "nosuid", "nodev"]),
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": USER_ID, "gid": USER_ID},
            "args": list(words),
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": "/var/lib/orbitlog",
            "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "ambient")},
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "orbitlog",
        "mounts": [
            {"destination": target, "type": kind, "source": source, "options": options}
            for target, kind, source, options in mounts
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]},
    }


def build_twice(variant: str) -> Image:
    """Build a variant twice, write its summary; raise `ImageError` if the two differ or the image has findings."""
    first, second = build(variant), build(variant)
    if (first.image_id, first.digest) != (second.image_id, second.digest):
        raise ImageError(f"{variant} is not reproducible: {first.digest} and {second.digest}")
    with mounted(variant) as root:
        found = [*findings(root), *config_findings(config_of(variant))]
    if found:
        raise ImageError(f"{variant} contains what no image may contain:\n" + "\n".join(found))
    (PLACE / f"{variant}.json").write_text(json.dumps(asdict(second), indent=1) + "\n")
    return second


def record(variant: str, image: Image) -> None:
    """Write the sizes of an image, in whole megabytes, beside those of the others."""
    sizes = json.loads(SIZES.read_text()) if SIZES.exists() else {}
    compressed, unpacked = round(image.compressed_bytes / 1e6), round(image.size_bytes / 1e6)
    sizes[variant] = {"extras": VARIANTS[variant], "unpackedMB": unpacked, "compressedMB": compressed}
    SIZES.write_text(json.dumps(dict(sorted(sizes.items(), reverse=True)), indent=1) + "\n")


def main(arguments: list[str]) -> int:
    is_recorded = "--record" in arguments
    arguments = [argument for argument in arguments if argument != "--record"]
    unknown = set(arguments) - set(VARIANTS)
    if unknown:
        print(__doc__, file=sys.stderr)
        return 2
    reason = missing_tools()
    if reason is not None:
        print(f"image: {reason}", file=sys.stderr)
        return 1
    PLACE.mkdir(parents=True, exist_ok=True)
    try:
        make_bases()
        for variant in arguments or VARIANTS:
            image = build_twice(variant)
            if is_recorded:
                record(variant, image)
            megabytes = [size / 1e6 for size in (image.size_bytes, image.compressed_bytes)]
            print(f"{image.name} {image.digest}: {megabytes[0]:.0f} MB, compressed {megabytes[1]:.0f} MB, built twice")
    except ImageError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
