"""OpenAPI 3.1 document of the API, generated from the endpoint table and the types of its answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from orbitlog.console.web.endpoint import API_PREFIX, Endpoint
from orbitlog.console.web.error_answers import ProblemDetail

_REFERENCE = "#/components/schemas/{name}"


def openapi_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the document; equal tables give equal documents."""
    table = sorted(endpoints, key=lambda endpoint: endpoint.path)
    types = [*dict.fromkeys(endpoint.answer for endpoint in table), ProblemDetail]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in table:
        failed = {
            "description": "an error",
            "content": {"application/problem+json": {"schema": schema_of[ProblemDetail]}},
        }
        paths[API_PREFIX + _plain_path(endpoint.path)] = {
            "get": {
                "operationId": endpoint.name,
                "summary": endpoint.summary,
                "description": f"Needs the role {endpoint.role.word}.",
                "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint)],
                "responses": {
                    "200": {
                        "description": "the answer",
                        "content": {"application/json": {"schema": schema_of[endpoint.answer]}},
                    },
                    "default": failed,
                },
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Orbitlog console", "version": "1"},
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items()))},
    }


def _plain_path(path: str) -> str:
    return re.sub(r":\w+}", "}", path)


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)", path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([endpoint.query], ref_template=_REFERENCE)
    schema = components.get(endpoint.query.__name__, {})
    required = set(schema.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": value}
        for name, value in schema.get("properties", {}).items()
    ]
