"""What the checks raise."""


class InvariantError(AssertionError):
    """The engine's state contradicts itself: a bug of ours. The text names the object."""
