"""Development certificates: a CA of one's own, and certificates that it issues, created by the `openssl` program.

Keys are EC P-256 in PKCS#8, which Java, C++ and Python read. They are for development and tests: the key of the CA is a
file like the others.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from orbitlog.errors import OrbitlogError
from orbitlog.settings.atomic_file import create_directory, replace_file
from orbitlog.settings.listen_exposure import is_ip_address
from orbitlog.settings.tls_options import TlsFiles

VALID_DAYS = 825
CA_NAME = "Orbitlog development CA"
_OPENSSL_SECONDS = 60
_PRIVATE = 0o600


class CertificateError(OrbitlogError):
    """Certificates cannot be created."""


def default_hosts() -> tuple[str, ...]:
    """Return the names and addresses of this machine on loopback, and its host name."""
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname())))


def write_self_signed(directory: Path) -> TlsFiles:
    """Write a self-signed certificate for `localhost` and its key; return their paths."""
    with _Workshop() as workshop:
        key = workshop.make_key("server")
        certificate = workshop.self_sign("server", "localhost", _server_extensions(default_hosts()))
    return _written(directory, "server", certificate, key)


class DevelopmentCa:
    """A CA in a directory: `ca.pem` and `ca.key`, and the certificates that it issues beside them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self._key = directory / "ca.key"

    def create(self, name: str = CA_NAME) -> None:
        """Write a new CA; raise `CertificateError` if one of its files exists."""
        refuse_existing((self.certificate, self._key))
        with _Workshop() as workshop:
            key = workshop.make_key("ca")
            extensions = "basicConstraints=critical,CA:true,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n"
            certificate = workshop.self_sign("ca", name, extensions)
        _written(self.directory, "ca", certificate, key)

    def issue_server(self, name: str, hosts: Sequence[str], *, days: int = VALID_DAYS) -> TlsFiles:
        """Write the certificate of a server that clients reach by these host names and addresses."""
        return self._issue(name, hosts[0], _server_extensions(hosts), days)

    def issue_client(self, name: str, common_name: str, *, days: int = VALID_DAYS) -> TlsFiles:
        """Write the certificate of a client; `common_name` can name a user of access control."""
        extensions = "basicConstraints=critical,CA:false\nkeyUsage=critical,digitalSignature\n"
        return self._issue(name, common_name, extensions + "extendedKeyUsage=clientAuth\n", days)

    def _issue(self, name: str, common_name: str, extensions: str, days: int) -> TlsFiles:
        refuse_existing((self.directory / f"{name}.pem", self.directory / f"{name}.key"))
        with _Workshop() as workshop:
            key = workshop.make_key(name)
            request = workshop.request(name, common_name, extensions)
            certificate = workshop.issue(request, self.certificate, self._key, days)
        return _written(self.directory, name, certificate, key)._replace(trust=str(self.certificate))


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise `CertificateError` if one of the files exists: a key that is overwritten is lost."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise CertificateError(f"{path} exists; choose another directory, or delete it first")


def _written(directory: Path, name: str, certificate: bytes, key: bytes) -> TlsFiles:
    create_directory(directory, 0o700)
    files = directory / f"{name}.pem", directory / f"{name}.key"
    # The key first: a certificate without its key would be of no use, and could not be replaced.
    replace_file(files[1], key, mode=_PRIVATE)
    replace_file(files[0], certificate, mode=_PRIVATE)
    return TlsFiles(str(files[0]), str(files[1]))


def _server_extensions(hosts: Sequence[str]) -> str:
    names = ",".join(f"{'IP' if is_ip_address(host) else 'DNS'}:{host}" for host in hosts)
    return (
        "basicConstraints=critical,CA:false\nkeyUsage=critical,digitalSignature\n"
        f"extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName={names}\n"
    )


class _Workshop:
    """A private temporary directory in which `openssl` runs."""

    def __init__(self) -> None:
        self._temporary = TemporaryDirectory(prefix="orbitlog-tls-")
        self._directory = Path(self._temporary.name)

    def __enter__(self) -> _Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def make_key(self, name: str) -> bytes:
        path = self._directory / f"{name}.key"
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))
        return path.read_bytes()

    def self_sign(self, name: str, common_name: str, extensions: str) -> bytes:
        config = self._config(name, common_name, extensions)
        key = str(self._directory / f"{name}.key")
        words = ("-new", "-sha256", "-key", key, "-config", config, "-extensions", "extensions")
        return _openssl("req", "-x509", "-days", str(VALID_DAYS), "-set_serial", _serial(), *words)

    def request(self, name: str, common_name: str, extensions: str) -> tuple[str, str]:
        """Return the paths of a signing request and of the extensions that its certificate shall have."""
        config = self._config(name, common_name, extensions)
        key, request = str(self._directory / f"{name}.key"), str(self._directory / f"{name}.csr")
        _openssl("req", "-new", "-sha256", "-key", key, "-config", config, "-out", request)
        return request, config

    def issue(self, request: tuple[str, str], ca: Path, ca_key: Path, days: int) -> bytes:
        words = ("-CA", str(ca), "-CAkey", str(ca_key), "-set_serial", _serial(), "-days", str(days))
        extended = ("-extfile", request[1], "-extensions", "extensions")
        return _openssl("x509", "-req", "-sha256", "-in", request[0], *words, *extended)

    def _config(self, name: str, common_name: str, extensions: str) -> str:
        if any(character in common_name + extensions.replace("\n", "") for character in "\n\r$\\#"):
            raise CertificateError(f"{common_name!r} is not a valid name in a certificate")
        path = self._directory / f"{name}.cnf"
        text = (
            "[req]\nprompt=no\nutf8=yes\nstring_mask=utf8only\ndistinguished_name=name\n"
            f"[name]\nCN={common_name}\n[extensions]\n{extensions}"
        )
        replace_file(path, text.encode(), mode=_PRIVATE, is_durable=False)
        return str(path)


def _serial() -> str:
    return f"0x{secrets.token_hex(16)}"


def _openssl(*words: str) -> bytes:
    program = shutil.which("openssl")
    if program is None:
        raise CertificateError("the program `openssl` is needed to create certificates; install it, or use other files")
    try:
        done = subprocess.run([program, *words], capture_output=True, timeout=_OPENSSL_SECONDS, check=True)  # noqa: S603
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").splitlines() or ["no reason given"]
        raise CertificateError(f"openssl {words[0]} failed: {lines[-1]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CertificateError(f"openssl {words[0]} failed: {error}") from None
    return done.stdout
