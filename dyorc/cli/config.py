"""``dyorc config``: checks, shows and explains the settings."""

from pathlib import Path
from typing import Annotated

import typer

from dyorc.errors import without_errno
from dyorc.settings.setting_names import PROGRAMS
from dyorc.settings.settings_reader import read
from dyorc.settings.settings_sources import USUAL, file_layer, find_file
from dyorc.settings.settings_text import defaults as text_of_defaults
from dyorc.settings.settings_text import print_in_force
from dyorc.settings.settings_text import schema as text_of_schema

app = typer.Typer(no_args_is_help=True, help="Checks and shows the settings: flags, environment, dyorc.toml, defaults.")


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(help="By default DYORC_CONFIG, or dyorc.toml in this folder.", dir_okay=False)
    ] = None,
    load: Annotated[
        bool, typer.Option("--load", help="Also import the workflows, and check the programs' names and options.")
    ] = False,
) -> None:
    """Names all that is wrong with a configuration file by itself, by line and key. Workflows and
    programs are imported and checked only with `--load`. Ends with 1 if anything is wrong.
    """
    from dyorc.settings.checking import problems_in  # here, because it imports what users write programs with

    path = find_file(file) or USUAL
    problems = problems_in(path, is_loading=load)
    for line in problems:
        typer.echo(without_errno(line), err=True)
    if problems:
        raise typer.Exit(1)
    names_code = any(file_layer(path).has((name,)) for name in ("workflows", PROGRAMS))
    unchecked = (
        "" if load or not names_code else " Workflows and programs were not checked: `dyorc config check --load` imports them."
    )
    print(f"{path} is good.{unchecked}")


@app.command()
def show(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file; by default as for `serve`.")] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that are not left at their defaults.")] = False,
) -> None:
    """Prints the settings in force and where each comes from. `dyorc serve ... --print-settings` shows those of flags, too."""
    print_in_force(read(config), is_all=not changed)


@app.command()
def defaults() -> None:
    """Prints a complete dyorc.toml with every default, and what each setting is for."""
    print(text_of_defaults(), end="")


@app.command()
def schema() -> None:
    """Prints the JSON schema of dyorc.toml, for editors."""
    print(text_of_schema(), end="")
