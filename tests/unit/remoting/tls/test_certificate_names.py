from __future__ import annotations

import pytest

from orbitlog.remoting.tls.certificate_names import certificate_name

ALICE = {
    "subject": ((("organizationName", "shop"),), (("commonName", "alice"),)),
    "subjectAltName": (("DNS", "a.shop"),),
}


@pytest.mark.parametrize(
    ("certificate", "source", "name"),
    [
        (ALICE, "subjectCN", "alice"),
        (ALICE, "san", "a.shop"),
        (None, "subjectCN", ""),
        ({}, "san", ""),
        ({"subject": ((("commonName", "alice"),), (("commonName", "root"),))}, "subjectCN", ""),
        ({"subject": ((("commonName", "alice\0root"),),)}, "subjectCN", ""),
        ({"subject": ((("commonName", "a" * 256),),)}, "subjectCN", ""),
    ],
)
def test_name_is_the_one_that_the_certificate_has(
    certificate: dict[str, object] | None, source: str, name: str
) -> None:
    assert certificate_name(certificate, source) == name
