"""Options of commands that talk to a running server."""

import os
from typing import Annotated

import typer

_KEY_VARIABLE = "DYORC_API_KEY"

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(help="The server.")]
Key = Annotated[str | None, typer.Option(help=f"An API key; by default ${_KEY_VARIABLE}.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def key_or_default(key: str | None) -> str | None:
    """Returns the key that was given, or that of the environment."""
    return key or os.environ.get(_KEY_VARIABLE)
