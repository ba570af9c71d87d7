"""The options of the command line: groups that commands share, and what contradicts itself."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from loadgen.command_options import group_options
from loadgen.options import ArrivalsKind, LoadOptions, PaceOptions, TargetOptions


@dataclass(frozen=True, kw_only=True)
class Colours:
    paint: Annotated[str, typer.Option("--paint", help="Which one.")]
    shades: Annotated[int, typer.Option("--shades", min=1)] = 2


@dataclass(frozen=True, kw_only=True)
class Brushes:
    paint: Annotated[str, typer.Option("--brush")] = ""


def test_a_command_takes_its_groups_whole() -> None:
    seen: list[object] = []

    def paint(wall: Annotated[str, typer.Argument()], colours: Colours, coats: int = 1) -> None:
        """Paints a wall."""
        seen.append((wall, colours, coats))

    app = typer.Typer()
    app.command()(group_options(paint))
    runner = CliRunner()

    assert runner.invoke(app, ["north", "--paint", "red", "--coats", "3"], catch_exceptions=False).exit_code == 0
    assert seen == [("north", Colours(paint="red", shades=2), 3)]
    assert runner.invoke(app, ["north"]).exit_code == 2  # --paint has no default
    assert runner.invoke(app, ["north", "--paint", "red", "--shades", "0"]).exit_code == 2
    told = runner.invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    for said in ("Paints a wall.", "--paint", "Which one.", "--shades", "--coats", "wall"):
        assert said.lower() in told.lower()


def test_one_name_for_two_options_is_refused() -> None:
    def paint(colours: Colours, brushes: Brushes) -> None: ...

    with pytest.raises(TypeError, match="has the option 'paint' twice"):
        group_options(paint)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="expected only one of them"):
        LoadOptions().load(PaceOptions(rate=1, clients=1), 0)
    with pytest.raises(ValueError, match="no load is given"):
        LoadOptions().load(PaceOptions(), 0)
    with pytest.raises(ValueError, match="needs --trace"):
        LoadOptions(arrivals=ArrivalsKind.TRACE).load(PaceOptions(), 0)
    with pytest.raises(ValueError, match="expected http, grpc, raw"):
        TargetOptions(protocol="smoke").spec("http://x", "m")
    assert LoadOptions().load(PaceOptions(clients=3), 0).arrivals == "closed"
    assert TargetOptions(header=["X-Key:  a:b "]).spec("http://x", "m").headers == {"X-Key": "a:b"}
    assert TargetOptions().spec("grpc://x", "m", "grpc").protocol == "grpc"
