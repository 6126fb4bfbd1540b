"""Routes of changes: in the API a dry run and the change itself, and a page with form, plan and result for each.

They exist only in a console that was started with --write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orbitlog.console.changes.carry_out import PlanChanged, Requester, carry_out, plan_change
from orbitlog.console.changes.planned_change import ChangeKind, ChangePlan, ChangeRequest
from orbitlog.console.console_call import Call, require_role
from orbitlog.console.console_state import Console
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.web.change_forms import decode_form, decode_json, form_fields
from orbitlog.console.web.endpoint import API_PREFIX, Handler
from orbitlog.console.web.page_rendering import PageRenderer
from orbitlog.console.web.request_forms import client_address, client_browser, read_body, read_form, require_csrf

_OWN_FIELDS = ("csrf", "step", "planId", "confirm")
_TEMPLATE = "change.html"


class ChangeRoutes:
    """Builds the routes of a table of changes."""

    def __init__(self, console: Console, renderer: PageRenderer, kinds: tuple[ChangeKind, ...]) -> None:
        self._console = console
        self._renderer = renderer
        self._kinds = kinds

    def routes(self) -> list[Route]:
        if not self._console.options.may_write:
            return []
        routes = []
        for kind in self._kinds:
            routes.append(Route(API_PREFIX + kind.path, self._api(kind), methods=[kind.method]))
            routes.append(Route(kind.page, self._form(kind), methods=["GET"]))
            routes.append(Route(kind.page, self._submit(kind), methods=["POST"]))
        return routes

    def _call(self, request: Request, fields: ChangeRequest | None) -> Call:
        return Call(self._console, request.scope[VISITOR], request.path_params, fields)

    def _api(self, kind: ChangeKind) -> Handler:
        async def answer(request: Request) -> Response:
            require_role(request.scope[VISITOR], kind.role)
            require_csrf(request, {})
            call = self._call(request, decode_json(kind.request, await read_body(request)))
            parameters = dict(request.query_params)
            plan_id, confirm = parameters.pop("planId", ""), parameters.pop("confirm", "")
            wants_plan = parameters.pop("plan", "") == "true"
            if parameters or wants_plan == bool(plan_id):
                raise ConsoleError(400, "give ?plan=true for a dry run, or ?planId= of a plan, and confirm= if it asks")
            if wants_plan:
                return _json(await plan_change(kind, call), 200)
            try:
                result = await carry_out(kind, call, plan_id, confirm, _requester(request))
            except PlanChanged as error:
                return _json(error.plan, 409)
            return _json(result, 200 if result.job is None else 202)

        return answer

    def _form(self, kind: ChangeKind) -> Handler:
        async def show(request: Request) -> Response:
            require_role(request.scope[VISITOR], kind.role)
            given = {name: value[:4096] for name, value in request.query_params.items()}
            return self._page(request, kind, given)

        return show

    def _submit(self, kind: ChangeKind) -> Handler:
        async def submit(request: Request) -> Response:
            require_role(request.scope[VISITOR], kind.role)
            fields = await read_form(request)
            require_csrf(request, fields)
            given = {name: value for name, value in fields.items() if name not in _OWN_FIELDS}
            try:
                return await self._step(request, kind, fields, given)
            except PlanChanged as error:
                return self._page(request, kind, given, plan=error.plan, problem=str(error), status=409)
            except ConsoleError as error:
                if error.status not in (400, 404, 409):
                    raise
                return self._page(request, kind, given, problem=str(error), status=error.status)

        return submit

    async def _step(
        self, request: Request, kind: ChangeKind, fields: Mapping[str, str], given: Mapping[str, str]
    ) -> Response:
        call = self._call(request, decode_form(kind.request, given))
        if fields.get("step") != "apply":
            return self._page(request, kind, given, plan=await plan_change(kind, call))
        plan_id, confirm = fields.get("planId", ""), fields.get("confirm", "")
        result = await carry_out(kind, call, plan_id, confirm, _requester(request))
        if result.job is not None:
            return RedirectResponse(f"/jobs/{result.job}", 303)
        return self._page(request, kind, given, result=result)

    def _page(
        self,
        request: Request,
        kind: ChangeKind,
        given: Mapping[str, str],
        *,
        plan: ChangePlan | None = None,
        result: Any = None,
        problem: str | None = None,
        status: int = 200,
    ) -> Response:
        values = {
            "fields": form_fields(kind.request, given),
            "given": given,
            "plan": plan,
            "result": result,
            "problem": problem,
            "summary": kind.summary,
        }
        title = kind.title.format_map(request.path_params)
        return self._renderer.page(request, _TEMPLATE, values, title=title, section=kind.section, status=status)


def _requester(request: Request) -> Requester:
    return Requester(client_address(request), client_browser(request))


def _json(answer: Any, status: int) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")
