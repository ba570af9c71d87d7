"""The engine, event by event."""
