"""File descriptors of this process: how many it may have, and has. Only the standard library."""

import contextlib
import errno
import os
import resource

_OPEN_MAX = 10_240
"""What macOS allows at most, whatever its limit says."""


def raise_limit() -> int:
    """Raises the soft limit of open files as far as possible. Returns it; `resource.RLIM_INFINITY` if there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, _OPEN_MAX):
        if soft == hard or (limit != hard and soft >= limit):
            break
        with contextlib.suppress(OSError, ValueError):  # macOS claims to have no limit, and lets only OPEN_MAX be set
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
    return soft


def num_open() -> int:
    """Returns how many descriptors are open now; 0 if none can be opened to find that out, or the system does not say."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/dev/fd")) - 1  # without the one that reads the folder
    return 0


def check_room(num_needed: int) -> None:
    """Checks that so many descriptors may still be opened.

    Raises:
        OSError: If not. The message names the limit.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY and soft - num_open() < num_needed:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def with_cure(text: str, error: BaseException) -> str:
    """Returns an error's text; if it came because too many files are open, also with the limit, and what raises it."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        if isinstance(cause, OSError) and cause.errno == errno.EMFILE:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return (
                f"{text}; a process may have {soft} files and connections open here: raise the limit, e.g. by `ulimit -n 65536`, "
                f"LimitNOFILE= in systemd, --ulimit nofile= in Docker"
            )
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return text
