"""A Prometheus server for tests: Debian's package, unpacked where that is permitted, else the tests are skipped."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
_READY_SECONDS = 60
_NOT_READY = 503


def prometheus_directory() -> Path:
    """Return the directory with `prometheus` and `promtool`; skip the test if they are missing."""
    found = subprocess.run([TOOLS / "find_prometheus", "--install"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip().splitlines()[-1])
    return Path(found.stdout.strip())


class PrometheusServer:
    """Scrapes one target every second, and answers queries; a context that ends it."""

    def __init__(self, directory: Path, port: int, target: str, rules: tuple[Path, ...] = ()) -> None:
        self._url = f"http://127.0.0.1:{port}"
        config = directory / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(path) for path in rules],
                    "scrape_configs": [{"job_name": "rocketmq", "static_configs": [{"targets": [target]}]}],
                }
            )
        )
        self._log = (directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                prometheus_directory() / "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query; raise an `AssertionError` if Prometheus refuses it."""
        text = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{text}", timeout=20) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_READY:
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def wait_for(self, expression: str, put_load: Callable[[], object] = lambda: None) -> None:
        """Return when a query has a result; put load on the broker meanwhile."""
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                if self.query(expression):
                    return
            except OSError:
                assert self._process.poll() is None, "Prometheus has ended"
            assert time.monotonic() < deadline, f"no result of {expression}"
            put_load()
            time.sleep(0.2)

    def __enter__(self) -> PrometheusServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()
