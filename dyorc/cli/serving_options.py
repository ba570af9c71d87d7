"""Options of commands that serve, and the settings that they set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dyorc.errors import ConfigurationError
from dyorc.settings.settings_reader import LoadedSettings, read

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH:WORKFLOW...]",
        help="Workflows to serve, such as app.py:classify or package.module:flow; by default those in the configuration file.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Configuration file; by default DYORC_CONFIG, or dyorc.toml in this folder."),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
GrpcPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port for gRPC; by default the one after --port; 0 takes a free one.")
]
AllowClientShm = Annotated[
    bool | None,
    typer.Option(
        "--allow-client-shm/--no-allow-client-shm",
        help="Let clients on this machine pass tensors in shared memory.",
    ),
]
Application = Annotated[
    str | None,
    typer.Option("--app", metavar="PATH:APP", help="Your own ASGI application beside DyOrc's routes, such as app.py:api."),
]
InProcess = Annotated[
    bool | None,
    typer.Option("--in-process/--on-ray", help="Run the programs in the server's own process, without Ray; or on Ray."),
]


def plans_of(options: Sequence[str]) -> Mapping[str, Any] | None:
    """Returns the settings of programs that `--plan PROGRAM=FILE` sets; None if there are none.

    Raises:
        ConfigurationError: If one does not look so.
    """
    settings: dict[str, Any] = {}
    for option in options:
        program, separator, file = option.partition("=")
        if not (program and separator and file):
            raise ConfigurationError(f"--plan {option} names no program and plan; expected PROGRAM=FILE, like encode=encode.plan")
        settings[program] = {"plan": str(Path(file).resolve())}
    return settings or None


def read_flags(config: Path | None, flags: Mapping[str, Any], is_verbose: bool) -> LoadedSettings:
    """Reads the settings; flags that are not None go before the environment and the file.

    Args:
        is_verbose: Whether to log at least what is worth knowing.

    Raises:
        ConfigurationError: If the settings are wrong.
    """
    reading = read(config, flags)
    if is_verbose and reading.settings.telemetry.logs.level != "debug":
        return read(config, {**flags, "telemetry.logs.level": "info"})
    return reading


def workflows_of(reading: LoadedSettings, console: Console) -> list[str]:
    """Returns what to serve, and says where the settings come from.

    Raises:
        ConfigurationError: If that is nothing.
    """
    if not reading.settings.workflows:
        raise ConfigurationError("nothing to serve: name workflows, such as app.py:classify, or list them in dyorc.toml")
    say_file(reading, console)
    return list(reading.settings.workflows)


def say_file(reading: LoadedSettings, console: Console) -> None:
    """Says where the settings come from."""
    if reading.file is not None:
        console.print(f"Settings from {reading.file}", highlight=False)
