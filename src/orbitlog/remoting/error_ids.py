"""Error ids: a peer gets an id instead of the text of an internal error, and the log has the text with the same id.

Texts of internal errors contain paths, class names and bytes of other clients. An operator finds the cause by the id.
"""

from __future__ import annotations

import logging
import os

from orbitlog.errors import BadExpression, FormatError, OrbitlogError, WireError

log = logging.getLogger(__name__)

# About the request or its answer alone: the peer can act on the text, and it contains nothing of the server.
_ABOUT_THE_REQUEST = (BadExpression, FormatError, WireError)


def error_remark(error: BaseException, what: str, *values: object) -> str:
    """Return the remark about an error for a peer, and log the error; `what` is a log message with `values`."""
    if isinstance(error, _ABOUT_THE_REQUEST):
        log.warning(f"{what}: %s", *values, error)
        return str(error)
    error_id = os.urandom(4).hex()
    if isinstance(error, OrbitlogError):
        log.warning(f"error {error_id}: {what}: %s", *values, error)
    else:
        log.error(f"error {error_id}: {what}", *values, exc_info=error)
    return f"internal error {error_id}; the log of the server has the cause under this id"
