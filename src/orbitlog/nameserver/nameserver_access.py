"""Access control of a name server: Orbitlog's own feature, under the keys of Java's broker.

With it, registrations, route changes and key-value configs need credentials, and route lookups need a permission on
the topic. Official clients sign requests to name servers as they do for brokers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitlog.access.access_settings import access_options
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.connection import Handler

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl


def load_name_server_access(settings: NameServerSettings) -> AccessControl | None:
    """Return the access control that settings ask for; None if none is switched on.

    Raise an `OrbitlogError` if settings or account files are invalid, or the first users cannot be saved.
    """
    options = access_options(settings.access, None, os.environ)
    if not options.is_on:
        return None
    from orbitlog.access.access_control import AccessControl

    access = AccessControl(options)
    access.create_first_users()
    return access


def guarded(handler: Handler, access: AccessControl | None) -> Handler:
    """Return the handler for admitted requests only, or as it is without access control."""
    if access is None:
        return handler
    from orbitlog.access.guarded_handler import guarded_handler

    return guarded_handler(access.guard, handler)
