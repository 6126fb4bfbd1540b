"""`python -m benchmarks.metrics_scraper ADDRESS`: scrapes a page of metrics once a second until it is terminated."""

from __future__ import annotations

import sys
import time
import urllib.request

_INTERVAL_S = 1.0


def main() -> None:
    [address] = sys.argv[1:]
    while True:
        time.sleep(_INTERVAL_S)
        with urllib.request.urlopen(address, timeout=60) as response:  # noqa: S310 - of the server being measured
            response.read()


if __name__ == "__main__":
    main()
