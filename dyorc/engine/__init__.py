"""The scheduler that decides without I/O: events in, actions out."""
