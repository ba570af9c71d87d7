"""Options of commands that talk to a running server, and the client that they make."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

if TYPE_CHECKING:
    from dyorc.client import Client

KEY_VARIABLE = "DYORC_API_KEY"

DEFAULT_URL = "http://127.0.0.1:8000"


def with_scheme(url: str) -> str:
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are not closed, a port that is none
        is_address = False
    if not is_address:
        raise typer.BadParameter(f"{url!r} is no server's address, expected http://host:port or https://host:port")
    return whole


Url = Annotated[str, typer.Option(envvar="DYORC_URL", help="The server.", callback=with_scheme)]
Key = Annotated[str | None, typer.Option(help=f"An API key; by default ${KEY_VARIABLE}.")]
Ca = Annotated[
    Path | None,
    typer.Option(
        envvar="DYORC_CA",
        exists=True,
        help="For https: file or folder of the authorities to trust instead of the system's.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def connect(url: str, key: str | None, ca: Path | None, *, timeout_s: float = 60.0) -> "Client":
    """Returns a client of the server that the options name; the environment's key is used if none is given."""
    from dyorc.client import Client  # here, because `dyorc --help` and commands that serve do not need it

    api_key = key or os.environ.get(KEY_VARIABLE)
    return Client(url, api_key=api_key, verify=True if ca is None else ca, timeout_s=timeout_s)


def time_of_day(at_s: float) -> str:
    """Returns Unix time as a local time of day."""
    return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%H:%M:%S")
