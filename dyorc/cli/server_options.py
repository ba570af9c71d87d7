"""Options of commands that talk to a running server, and the client that they make."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from dyorc.protocol.header_names import USABLE_KEY

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


def _of_a_path(ca: Path | None) -> Path | None:
    if ca == Path():  # which the empty text is, too: the variable of a script that is not set
        raise typer.BadParameter("it is empty, or '.'; expected the path of a file or folder")
    return ca


Url = Annotated[str, typer.Option(envvar="DYORC_URL", help="The server.", callback=with_scheme)]
Key = Annotated[str | None, typer.Option(help=f"An API key; by default ${KEY_VARIABLE}.")]
Ca = Annotated[
    Path | None,
    typer.Option(
        envvar="DYORC_CA",
        exists=True,
        callback=_of_a_path,
        help="For https: file or folder of the authorities to trust instead of the system's.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def connect(url: str, key: str | None, ca: Path | None, *, timeout_s: float = 60.0) -> "Client":
    """Returns a client of the server that the options name.

    Raises:
        typer.BadParameter: See `key_of`.
    """
    from dyorc.client import Client  # here, because `dyorc --help` and commands that serve do not need it

    return Client(url, api_key=key_of(key), verify=True if ca is None else ca, timeout_s=timeout_s)


def key_of(option: str | None) -> str | None:
    """Returns the API key of the option, or else of the environment; None without any. An empty text is none, as with the other
    variables of clients: jobs of CI have one where they lack a secret.

    Raises:
        typer.BadParameter: If no header can carry it. The key itself is not shown.
    """
    key = option or os.environ.get(KEY_VARIABLE) or None
    if key is not None and not USABLE_KEY.fullmatch(key):
        hint = "--key" if option else KEY_VARIABLE
        raise typer.BadParameter("an API key has visible ASCII characters alone: no spaces or line breaks", param_hint=hint)
    return key


def time_of_day(at_s: float) -> str:
    """Returns Unix time as a local time of day."""
    return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%H:%M:%S")
