"""Counts how the inputs of a batch came to the process that runs it: by which tier, how many bytes, how long that took."""

from dyorc.engine.request_trace import Move

MESSAGE = "message"
"""Not a tier: with the message that asks for the batch."""
HERE = "process"
"""Where they were there already."""


class InputMoves:
    """What has come since the last `take`. One thread."""

    def __init__(self) -> None:
        self._by_tier: dict[str, Move] = {}

    def add(self, tier: str, num_bytes: int, took_s: float = 0.0) -> None:
        """Adds tensors that came one way."""
        before = self._by_tier.get(tier)
        if before is not None:
            num_bytes, took_s = before.num_bytes + num_bytes, before.took_s + took_s
        self._by_tier[tier] = Move(tier, num_bytes, took_s)

    def take(self) -> tuple[Move, ...]:
        """Returns one entry for each way, and starts anew."""
        if not self._by_tier:
            return ()
        taken = tuple(self._by_tier.values())
        self._by_tier.clear()
        return taken
