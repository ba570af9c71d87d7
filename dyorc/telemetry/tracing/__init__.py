"""Traces: what became of a request, as spans, sent by OpenTelemetry's protocol. While it is off, nothing of that is imported."""
