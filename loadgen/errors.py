"""What goes wrong with the generator itself. What goes wrong with a server is counted instead."""


class WorkerFailedError(RuntimeError):
    """A worker ended before its time; carries what it said last."""
