"""White addresses of 4.9.7 and source IPs of policies."""

import json
from pathlib import Path

import pytest

from orbitlog.access.source_addresses import BadAddress, source_ip, white_address

ROWS = json.loads((Path(__file__).parents[2] / "support" / "signed_requests.json").read_text())["whiteAddresses"]
# 4.9.7 accepts the first, which matches no address, and does not compare the last two parts of the second.
REFUSED_HERE = {"2:3:*", "10.*.5.5"}


@pytest.mark.parametrize("row", ROWS, ids=[row["pattern"] for row in ROWS])
def test_white_address_decides_as_4_9_7_or_is_refused(row):
    if "matches" not in row or row["pattern"] in REFUSED_HERE:
        with pytest.raises(BadAddress):
            white_address(row["pattern"])
        return
    test = white_address(row["pattern"])

    assert [ip for ip in (*row["matches"], *row["not"]) if test(ip)] == row["matches"]


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("10.0.0.0/8", "10.0.0.1", "::1"),
        ("2001:db8::/32", "2001:db8::5", "2001:db9::5"),
        ("::1", "0:0:0:0:0:0:0:1", "::2"),
    ],
)
def test_source_ip_matches_address_or_network(text, inside, outside):
    assert source_ip(text)(inside)
    assert not source_ip(text)(outside)
    assert not source_ip(text)("not an address")


@pytest.mark.parametrize("text", ["", "host", "10.0.0.0/33", "10.0.0.*", "10.0.0.1-9", " 10.0.0.1"])
def test_invalid_source_ip_is_refused(text):
    with pytest.raises(BadAddress):
        source_ip(text)
