"""The ranges of a cluster's figures: all that a machine could have, and nothing that makes seconds infinite or not a number."""

from dyorc.errors import PlanError

RATES = (1e-3, 1e30)
"""Of flops, bytes, and what else is counted in a second."""
SECONDS = (0.0, 1e9)
"""Of latencies and the like."""
MAX_BYTES = 1 << 60
"""Of memory."""
MAX_DEVICES = 1 << 20
"""Of one kind in one machine."""


def check_range(whose: str, name: str, value: float, limits: tuple[float, float]) -> None:
    """Checks a figure against what a machine can have.

    Args:
        whose: What has it, such as `device V100 on left`.
        name: Its name.
        value: What it is.
        limits: The least and the most that it may be.

    Raises:
        PlanError: It is less, more, or no number.
    """
    least, most = limits
    if not least <= value <= most:
        raise PlanError(f"{whose}: {name} must be a number from {least:g} to {most:g}, and not {value!r}")
