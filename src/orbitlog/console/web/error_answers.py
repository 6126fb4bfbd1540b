"""Errors as HTTP answers: a status, a title and a sentence, as a page or as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.web.endpoint import API_PREFIX
from orbitlog.errors import BrokerRefused, ClientError, NoRoute, OrbitlogError, RemotingError

log = logging.getLogger(__name__)


class ProblemDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an error; `code` is the broker's response code."""

    status: int
    title: str
    detail: str
    code: int | None = None


def problem_of(error: OrbitlogError) -> ProblemDetail:
    """Return status and sentence of an error."""
    if isinstance(error, ConsoleError):
        status = error.status
    elif isinstance(error, NoRoute):
        status = 404
    elif isinstance(error, BrokerRefused | RemotingError):
        status = 502
    elif isinstance(error, ClientError):
        status = 400
    else:
        status = 500
    code = error.code if isinstance(error, BrokerRefused) else None
    return ProblemDetail(status=status, title=HTTPStatus(status).phrase, detail=problem_sentence(error), code=code)


def unexpected_problem(error: Exception) -> ProblemDetail:
    """Log an unexpected error under an id; the answer contains only the id."""
    number = secrets.token_hex(4)
    log.error("internal error %s", number, exc_info=error)
    detail = f"internal error {number}; the log of the console has the details"
    return ProblemDetail(status=500, title="Internal Server Error", detail=detail)


def json_problem(problem: ProblemDetail) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, media_type="application/problem+json")


def wants_json(request: Request) -> bool:
    return request.url.path.startswith(API_PREFIX)
