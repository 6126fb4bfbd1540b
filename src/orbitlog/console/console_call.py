"""One request as functions of the console see it: its visitor, the words of its path and its decoded parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role, Visitor
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.views.answers import ConsoleError


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `query` are the parameters of a read, or the fields of a change."""

    console: Console
    visitor: Visitor
    path: Mapping[str, str]
    query: Any

    @property
    def may_view_bodies(self) -> bool:
        """Return whether the visitor may see bodies and properties of messages."""
        return self.visitor.role >= Role.OPERATOR or not self.console.options.hides_bodies

    @property
    def cluster(self) -> ClusterSource:
        """The cluster that the path names; only configured ones exist."""
        source = self.console.clusters.get(self.path["cluster"])
        if source is None:
            known = ", ".join(self.console.clusters) or "none"
            raise ConsoleError(404, f"unknown cluster {self.path['cluster'][:80]!r}; this console has: {known}")
        return source


def require_role(visitor: Visitor, needed: Role) -> None:
    """Raise `ConsoleError` with 401 or 403 unless the visitor has this role or a higher one."""
    if visitor.role is Role.NONE:
        raise ConsoleError(401, "sign in first")
    if visitor.role < needed:
        raise ConsoleError(403, f"this needs the role {needed.word}; you have the role {visitor.role.word}")
