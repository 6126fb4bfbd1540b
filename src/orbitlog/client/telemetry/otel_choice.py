"""Whether a client uses OpenTelemetry: if asked to, or if the application has set a tracer provider."""

from __future__ import annotations

import sys

_NO_PROVIDERS = frozenset(("ProxyTracerProvider", "NoOpTracerProvider", "DefaultTracerProvider"))


def wants_otel(chosen: bool | None) -> bool:
    """Return the choice; without one, whether the application set a tracer provider that records.

    An application that sets a provider has imported the API: it is never imported just to look.
    """
    if chosen is not None:
        return chosen
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return False
    return type(api.get_tracer_provider()).__name__ not in _NO_PROVIDERS
