"""Which DyOrc this is. The version comes from the tag of the commit that was built (pyproject.toml, CONTRIBUTING.md)."""

import functools

DISTRIBUTION = "dyorc-core"
"""The distribution that holds the code. `dyorc` is this one with its usual extras."""


@functools.cache
def version() -> str:
    """Returns the version of the installed package: that of the code as it was when it was installed, also in a checkout."""
    from importlib import metadata  # here, because it takes a moment, in which the command does not handle signals yet

    return metadata.version(DISTRIBUTION)
