"""Numbers of things, for people."""


def count(number: int, thing: str, things: str = "") -> str:
    """Returns a number with its noun: ``1 round``, ``2 rounds``.

    Args:
        things: The plural, if it is not `thing` with an s.
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
