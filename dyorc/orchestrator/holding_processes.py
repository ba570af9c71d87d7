"""Which replicas are in the processes that hold residents, so that each such process can be reached."""


class HoldingProcesses:
    """The processes of groups of programs. Each is known from its first replica that was ready until the last one is gone."""

    def __init__(self) -> None:
        self._replicas: dict[str, dict[str, None]] = {}
        self._process_of: dict[str, str] = {}

    def join(self, replica_id: str, process: str) -> None:
        """Notes where a replica is; without a process, it holds no residents."""
        if process:
            self._process_of[replica_id] = process
            self._replicas.setdefault(process, {})[replica_id] = None

    def leave(self, replica_id: str) -> None:
        """Forgets a replica that is gone."""
        process = self._process_of.pop(replica_id, None)
        if process is not None:
            del self._replicas[process][replica_id]
            if not self._replicas[process]:
                del self._replicas[process]

    def replica_in(self, process: str) -> str | None:
        """Returns a replica in a process, which is any of those there; None if the process is not known."""
        return next(iter(self._replicas.get(process, ())), None)
