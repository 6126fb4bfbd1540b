"""Spans and client metrics of OpenTelemetry; imported only if an application uses it."""
