"""The shell around the engine: it owns the clock, the sockets and the bytes."""
