"""Access control of a name server: Orbitlog's own feature, under the keys of Java's broker.

With it, registrations, route changes and key-value configs need credentials, and route lookups need a permission on
the topic. Official clients sign requests to name servers as they do for brokers.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitlog.access.access_control import AccessControl
from orbitlog.access.access_settings import AccessOptions
from orbitlog.access.certificate_sender import named_by_certificate
from orbitlog.access.guarded_handler import guarded_handler
from orbitlog.remoting.connection import Handler
from orbitlog.remoting.request_dispatch import refuse_later


def load_access_control(options: AccessOptions, now_ms: Callable[[], int]) -> AccessControl:
    """Return the access control of these options, with an audit log if they name its file.

    Raise an `OrbitlogError` if account files are invalid, or the first users cannot be saved.
    """
    access = AccessControl(options)
    access.create_first_users()
    if options.audit_file is not None:
        access.start_audit(options.audit_file, now_ms)
    return access


def guarded(handler: Handler, access: AccessControl) -> Handler:
    """Return the handler for admitted requests only."""
    return named_by_certificate(access.guard, guarded_handler(access, handler, refuse_later))
