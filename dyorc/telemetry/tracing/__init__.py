"""Traces: a request's execution as spans, sent by OpenTelemetry's protocol. While tracing is off, nothing of it is imported."""
