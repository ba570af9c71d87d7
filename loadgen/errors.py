"""Errors of the generator itself. Errors of a server are counted instead."""


class WorkerFailedError(RuntimeError):
    """A worker ended too early. The message contains its last words."""
