"""OpenAPI 3.1 document of the API, generated from the endpoint table and the types of its answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from orbitlog.console.changes.planned_change import ChangeKind, ChangePlan, ChangeResult
from orbitlog.console.web.endpoint import API_PREFIX, Endpoint
from orbitlog.console.web.error_answers import ProblemDetail

_CHANGE_PARAMETERS = (
    {"name": "plan", "in": "query", "schema": {"type": "boolean"}, "description": "true for a dry run"},
    {"name": "planId", "in": "query", "schema": {"type": "string"}, "description": "Plan to carry out"},
    {"name": "confirm", "in": "query", "schema": {"type": "string"}, "description": "Text that the plan asks for"},
)
_REFERENCE = "#/components/schemas/{name}"


def openapi_document(endpoints: Iterable[Endpoint], changes: Iterable[ChangeKind] = ()) -> dict[str, Any]:
    """Return the document; equal tables give equal documents."""
    table = sorted(endpoints, key=lambda endpoint: endpoint.path)
    kinds = sorted(changes, key=lambda kind: (kind.path, kind.method))
    answers = dict.fromkeys([endpoint.answer for endpoint in table] + [kind.request for kind in kinds])
    types: list[type] = [*answers, ProblemDetail, ChangePlan, ChangeResult]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    failed = {
        "description": "an error",
        "content": {"application/problem+json": {"schema": schema_of[ProblemDetail]}},
    }
    for endpoint in table:
        paths[API_PREFIX + _plain_path(endpoint.path)] = {
            "get": {
                "operationId": endpoint.name,
                "summary": endpoint.summary,
                "description": f"Needs the role {endpoint.role.word}.",
                "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint)],
                "responses": {"200": _answer("the answer", schema_of[endpoint.answer]), "default": failed},
            }
        }
    for kind in kinds:
        paths.setdefault(API_PREFIX + _plain_path(kind.path), {})[kind.method.lower()] = {
            "operationId": kind.name,
            "summary": kind.summary,
            "description": f"Needs the role {kind.role.word}. First ?plan=true, then ?planId= of the plan.",
            "parameters": [*_path_parameters(kind.path), *_CHANGE_PARAMETERS],
            "requestBody": {"content": {"application/json": {"schema": schema_of[kind.request]}}},
            "responses": {
                "200": _answer("the plan, or the result", {"oneOf": [schema_of[ChangePlan], schema_of[ChangeResult]]}),
                "202": _answer("the change continues as a job", schema_of[ChangeResult]),
                "409": _answer("the state has changed: the new plan", schema_of[ChangePlan]),
                "default": failed,
            },
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Orbitlog console", "version": "1"},
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items()))},
    }


def _answer(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


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
