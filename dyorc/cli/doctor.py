"""``dyorc doctor``: says what is wrong with this machine, or with a running server, and how to mend it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from dyorc.cli.server_options import AsJson, Ca, Key, key_of, with_scheme
from dyorc.core.counts import count
from dyorc.errors import ConfigurationError
from dyorc.settings.settings_reader import read

if TYPE_CHECKING:
    from dyorc.doctor.finding import Finding, Subject

_MARKS = {"ok": ("+", "green"), "warning": ("!", "yellow"), "error": ("x", "red")}


def doctor(
    url: Annotated[str | None, typer.Option(help="Also ask this running server.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file; by default as for `serve`.")] = None,
    key: Key = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Checks versions, memory, limits, ports, settings, Ray and GPUs, and says how to mend them. The exit code is 1 on errors."""
    from dyorc.doctor.diagnosis import diagnose  # here, because other commands do not need it

    subject = _subject("" if url is None else with_scheme(url), config, key, ca)
    console = Console(highlight=False)
    findings: list[tuple[str, Finding]] = []
    for area, finding in diagnose(subject):
        if not as_json:
            _show(console, area if not findings or findings[-1][0] != area else "", finding)
        findings.append((area, finding))
    num_errors = sum(finding.level == "error" for _, finding in findings)
    num_warnings = sum(finding.level == "warning" for _, finding in findings)
    if as_json:
        rows = [{"area": area, "level": finding.level, "text": finding.text, "cure": finding.cure} for area, finding in findings]
        print(json.dumps({"num_errors": num_errors, "num_warnings": num_warnings, "findings": rows}, indent=2))
    else:
        console.print(f"\n{count(num_errors, 'error')}, {count(num_warnings, 'warning')}")
    if num_errors:
        raise typer.Exit(1)


def _subject(url: str, config: Path | None, key: str | None, ca: Path | None) -> "Subject":
    from dyorc.doctor.finding import Subject

    api_key = key_of(key)
    try:
        reading = read(config)
    except ConfigurationError as error:
        return Subject(settings_error=str(error), config=config, url=url, key=api_key, ca=ca)
    return Subject(settings=reading.settings, config=reading.file, url=url, key=api_key, ca=ca)


def _show(console: Console, area: str, finding: "Finding") -> None:
    if area:
        console.print(Text(area, style="bold"))
    mark, style = _MARKS[finding.level]
    console.print(Padding(Text.assemble((f"{mark} ", style), finding.text), (0, 0, 0, 2), expand=False))
    if finding.cure:
        console.print(Padding(Text(f"-> {finding.cure}", style=style), (0, 0, 0, 4), expand=False))
