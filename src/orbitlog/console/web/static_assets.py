"""Static files: read once at the start and served from memory under a path with the hash of their content.

A path that is not in the table does not exist, so no request reaches the file system.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from orbitlog.console.views.answers import ConsoleError

_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_DIRECTORY = Path(__file__).resolve().parent.parent / "static"


@dataclass(frozen=True, slots=True)
class _Asset:
    content: bytes
    compressed: bytes
    kind: str


class StaticAssets:
    """The static files of the console; `version` changes with any of them."""

    def __init__(self, directory: Path = _DIRECTORY) -> None:
        self._assets: dict[str, _Asset] = {}
        digest = hashlib.sha256()
        for path in sorted(directory.rglob("*")):
            kind = _KINDS.get(path.suffix)
            if kind is None or not path.is_file():
                continue
            content = path.read_bytes()
            digest.update(content)
            name = path.relative_to(directory).as_posix()
            self._assets[name] = _Asset(content, gzip.compress(content, 6, mtime=0), kind)
        self.version = digest.hexdigest()[:16]

    def url(self, name: str) -> str:
        assert name in self._assets, name
        return f"/static/{self.version}/{name}"

    def has(self, path: str) -> bool:
        """Return whether a file is served under a path."""
        start = f"/static/{self.version}/"
        return path.startswith(start) and path.removeprefix(start) in self._assets

    async def serve(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None or request.path_params["version"] != self.version:
            raise ConsoleError(404, "no such file")
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(asset.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=asset.kind)
        return Response(asset.content, headers=headers, media_type=asset.kind)
