"""``dyorc scale``: shows how many replicas the programs of a running server have, and sets it by hand."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column

from dyorc.cli.server_options import DEFAULT_URL, AsJson, Ca, Key, Url, connect, time_of_day
from dyorc.cli.stacked_table import StackedTable
from dyorc.errors import ConfigurationError

_NUM_SHOWN = 10
"""Last decisions that are shown."""

_console = Console(soft_wrap=True)


def scale(
    program: Annotated[str | None, typer.Argument(help="The program to set; without it, all are shown.")] = None,
    number: Annotated[int | None, typer.Argument(min=0, help="The same as --warm.")] = None,
    warm: Annotated[int | None, typer.Option(min=0, help="Replicas that take batches.")] = None,
    parked: Annotated[int | None, typer.Option(min=0, help="Replicas whose processes wait, without weights.")] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Leave both numbers to the forecast again.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    as_json: AsJson = False,
    ca: Ca = None,
) -> None:
    """Shows how many replicas programs have, or sets it: `dyorc scale large 2`. Setting it needs a key that may manage."""
    if number is not None and warm is not None:
        raise ConfigurationError(f"{number} and --warm {warm} are two numbers of replicas; give one")
    warm = number if warm is None else warm
    if program is not None and not auto and warm is None and parked is None:
        raise ConfigurationError(f"nothing to change for program {program!r}; pass --warm N, --parked N or --auto")
    if auto and (warm is not None or parked is not None):
        raise ConfigurationError("--auto leaves the numbers to the forecast; leave --warm and --parked out")
    if program is None and (auto or warm is not None or parked is not None):
        raise ConfigurationError("name the program that should be scaled")
    with connect(url, key, ca) as client:
        state = client.scaling() if program is None else client.scale(program, num_warm=warm, num_parked=parked)
    if as_json:
        print(json.dumps(state, indent=2))
    else:
        _show(state)


def _show(state: dict[str, Any]) -> None:
    numbers = ("warm", "warming", "parked", "starting")
    table = StackedTable("program", *(Column(name, justify="right") for name in numbers), "wanted", "why")
    for name, program in state["programs"].items():
        wanted = f"{program['num_warm_wanted']} warm, {program['num_parked_wanted']} parked"
        table.add_row(name, *(str(program[f"num_{number}"]) for number in numbers), wanted, program["reason"])
    _console.print(table)
    for decision in state["decisions"][-_NUM_SHOWN:]:
        at = time_of_day(decision["at_s"])
        _console.print(
            f"{at}  {decision['program']}: {decision['num_warm']} warm, {decision['num_parked']} parked: {decision['reason']}",
            style="dim",
            highlight=False,
        )
