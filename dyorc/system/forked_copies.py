"""Users' code may fork where it is not expected to. Only the standard library."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress


@contextmanager
def ending_copies(message: bytes = b"") -> Generator[None]:
    """Ends each copy of this process that was forked within the block and comes to its end: it would go on as this process, with
    its sockets and files.

    Args:
        message: What a copy writes to standard error before.
    """
    own = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own:
            with suppress(OSError):  # it may be closed
                os.write(2, message)
            os._exit(1)
