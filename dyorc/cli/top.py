"""``dyorc top`` and ``dyorc status``: what a running server is doing, as a table that follows it, or once."""

import contextlib
import json
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from dyorc.cli.live_tables import tables
from dyorc.cli.server_options import DEFAULT_URL, AsJson, Ca, Key, Url, connect
from dyorc.errors import CapacityError, DeadlineError, TransportError
from dyorc.system.finite_option import finite

if TYPE_CHECKING:
    from dyorc.client import Client


def top(
    url: Url = DEFAULT_URL,
    key: Key = None,
    ca: Ca = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as when the output is not a terminal.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", callback=finite, min=0.1, help="Seconds between updates.")] = 1.0,
) -> None:
    """Shows requests, programs, replicas, queues, batches and guesses of a running server, again every second. Ctrl-C ends it."""
    console = Console(highlight=False)
    with connect(url, key, ca) as client:
        if once or not console.is_terminal:
            console.print(tables(client.live(), None), soft_wrap=True)
            return
        with contextlib.suppress(KeyboardInterrupt):
            _follow(client, console, url, interval_s)


def _follow(client: "Client", console: Console, url: str, interval_s: float) -> None:
    now, before = client.live(), None
    with Live(tables(now, before), console=console, screen=True, auto_refresh=False) as shown:
        while True:
            time.sleep(interval_s)
            try:
                latest = client.live()
            except (CapacityError, DeadlineError, TransportError) as error:  # that may pass
                shown.update(Text(f"{url}: {error}", style="red"), refresh=True)
            else:
                if latest["at_s"] != now["at_s"]:  # otherwise the server has given the same moment again
                    now, before = latest, now
                shown.update(tables(now, before), refresh=True)


def status(url: Url = DEFAULT_URL, key: Key = None, ca: Ca = None, as_json: AsJson = False) -> None:
    """Says whether a server is ready, or why not, and what it is doing now. The exit code is 1 if it is not ready."""
    with connect(url, key, ca) as client:
        reason, now = client.why_not_ready(), client.live()
    is_ready = not reason
    if as_json:
        print(json.dumps({"is_ready": is_ready, "reason": reason, **now}, indent=2))
    else:
        console = Console(soft_wrap=True, highlight=False)
        console.print(Text("ready", style="green") if is_ready else Text(_as_not_ready(reason), style="red"))
        console.print(tables(now, None))
    if not is_ready:
        raise typer.Exit(1)


def _as_not_ready(reason: str) -> str:
    """Returns the line for a server that is not ready, whether its reason begins so or not."""
    return reason if reason.startswith("not ready") else f"not ready: {reason}"
