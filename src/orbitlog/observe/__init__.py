"""Observability: the metric table, text formats, the HTTP listener and health pages that servers share."""
