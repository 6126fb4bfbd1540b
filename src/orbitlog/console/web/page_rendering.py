"""Rendering of pages: Jinja templates in the common frame, or only their live part for a refresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role, Visitor
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.web import shown_text
from orbitlog.console.web.static_assets import StaticAssets

_TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
LIVE_BLOCK = "live"


@dataclass(frozen=True, slots=True)
class Frame:
    """What the frame around every page shows."""

    title: str
    section: str
    clusters: list[str]
    cluster: str | None
    has_stores: bool
    visitor: Visitor
    may_write: bool
    needs_sign_in: bool
    url: str
    is_live: bool
    now_ms: int
    has_sql: bool = False

    @property
    def root(self) -> str:
        return f"/clusters/{self.cluster}"

    @property
    def is_admin(self) -> bool:
        return self.visitor.role is Role.ADMIN

    @property
    def may_operate(self) -> bool:
        """Whether this visitor may carry out the changes of operators."""
        return self.may_write and self.visitor.role >= Role.OPERATOR

    @property
    def may_administer(self) -> bool:
        """Whether this visitor may carry out the changes of admins."""
        return self.may_write and self.is_admin


class PageRenderer:
    """Renders templates for one console."""

    def __init__(self, console: Console, assets: StaticAssets) -> None:
        self._console = console
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=shown_text.visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals["asset"] = assets.url
        self._environment.filters.update(
            count=shown_text.shown_count,
            rate=shown_text.shown_rate,
            percent=shown_text.shown_percent,
            size=shown_text.shown_size,
            duration=shown_text.shown_duration,
            age=shown_text.shown_age,
            dict_with=lambda values, others: {**values, **others},
            when=shown_text.shown_time,
        )

    def page(
        self,
        request: Request,
        template_name: str,
        values: Mapping[str, Any],
        *,
        title: str,
        section: str = "",
        is_live: bool = False,
        status: int = 200,
    ) -> Response:
        """Render a page; a request of htmx gets only the live part."""
        template = self._environment.get_template(template_name)
        frame = self._frame(request, title, section, is_live)
        values = {**values, "frame": frame, "now_ms": frame.now_ms}
        headers = {"vary": "HX-Request"}
        if is_live and request.headers.get("hx-request") == "true" and LIVE_BLOCK in template.blocks:
            context = template.new_context(values)
            text = "".join(template.blocks[LIVE_BLOCK](context))
        else:
            text = template.render(values)
        return HTMLResponse(text, status, headers)

    def _frame(self, request: Request, title: str, section: str, is_live: bool) -> Frame:
        console = self._console
        cluster = request.path_params.get("cluster")
        if cluster not in console.clusters:
            cluster = next(iter(console.clusters), None)
        query = request.url.query
        return Frame(
            title=title,
            section=section,
            clusters=list(console.clusters),
            cluster=cluster,
            has_stores=bool(console.options.stores),
            visitor=request.scope[VISITOR],
            may_write=console.options.may_write,
            needs_sign_in=not console.is_open,
            url=request.url.path + (f"?{query}" if query else ""),
            is_live=is_live,
            now_ms=console.now_ms,
            has_sql=console.options.allows_sql and request.scope[VISITOR].role is Role.ADMIN,
        )
