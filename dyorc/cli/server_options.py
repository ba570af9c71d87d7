"""Options of commands that talk to a running server."""

import os
from pathlib import Path
from typing import Annotated

import typer

_KEY_VARIABLE = "DYORC_API_KEY"

DEFAULT_URL = "http://127.0.0.1:8000"


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"


Url = Annotated[str, typer.Option(help="The server.", callback=_with_scheme)]
Key = Annotated[str | None, typer.Option(help=f"An API key; by default ${_KEY_VARIABLE}.")]
Ca = Annotated[
    Path | None,
    typer.Option(
        envvar="DYORC_CA",
        exists=True,
        help="For https: file or folder of the authorities to trust instead of the system's.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def key_or_default(key: str | None) -> str | None:
    """Returns the key that was given, or that of the environment."""
    return key or os.environ.get(_KEY_VARIABLE)


def verify_of(ca: Path | None) -> Path | bool:
    """Returns how a client checks the server's certificate."""
    return True if ca is None else ca
