"""SBOM of an image, in CycloneDX 1.5: the Python packages of this environment and the packages of Debian.

usage: write_sbom.py FILE

Uses the standard library alone, as it runs in the build stage of deploy/image/Containerfile. Two runs over the same
packages write the same bytes: the file has no timestamp, and its serial number is a hash of the components.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

DPKG_STATUS = Path("/var/lib/dpkg/status")
OS_RELEASE = Path("/etc/os-release")


def python_components() -> list[dict[str, Any]]:
    """Return a component for each installed distribution of this interpreter's environment."""
    components = []
    for distribution in metadata.distributions(path=[path for path in sys.path if path.startswith(sys.prefix)]):
        name, version = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(), distribution.version
        component = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
        components.append(with_license(component, distribution.metadata))
    return components


def with_license(component: dict[str, Any], fields: metadata.PackageMetadata) -> dict[str, Any]:
    """Add the licence: the expression if the package has one, otherwise the short text of its field."""
    expression, text = fields.get("License-Expression"), fields.get("License")
    if expression:
        return {**component, "licenses": [{"expression": expression}]}
    if text and len(text) < 100 and "\n" not in text:
        return {**component, "licenses": [{"license": {"name": text}}]}
    return component


def debian_components(status: str, distribution: str) -> list[dict[str, Any]]:
    """Return a component for each installed package of a dpkg status file."""
    components = []
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match(r"[A-Z][\w-]*: ", line))
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{version.replace(':', '%3A')}?arch={fields['Architecture']}"
            components.append(
                {"type": "library", "name": name, "version": version, "purl": f"{purl}&distro={distribution}"}
            )
    return components


def debian_release() -> str:
    """Return a name such as debian-12, from /etc/os-release."""
    text = OS_RELEASE.read_text() if OS_RELEASE.exists() else ""
    found = re.search(r'^VERSION_ID="?([\w.]+)"?$', text, re.MULTILINE)
    return f"debian-{found[1] if found else 'unknown'}"


def document(components: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the SBOM of these components, in the order of their names."""
    ordered = sorted(components, key=lambda component: component["purl"])
    digest = hashlib.sha256(json.dumps(ordered, sort_keys=True).encode()).digest()
    described = next(component for component in ordered if component["name"] == "orbitlog")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {"component": {**described, "type": "application", "bom-ref": "orbitlog"}},
        "components": [component for component in ordered if component is not described],
    }


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write(__doc__ or "")
        return 2
    components = python_components()
    if DPKG_STATUS.exists():
        components += debian_components(DPKG_STATUS.read_text(), debian_release())
    target = Path(arguments[0])
    target.write_text(json.dumps(document(components), indent=1) + "\n")
    target.chmod(0o644)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
