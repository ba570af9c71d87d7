"""``dyorc deploy``, ``undeploy`` and ``rollback``: versions of workflows on a running server."""

import contextlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dyorc.cli.server_options import DEFAULT_URL, AsJson, Ca, Key, Url, connect, time_of_day
from dyorc.cli.stacked_table import StackedTable
from dyorc.errors import ConfigurationError, PermissionDeniedError
from dyorc.protocol.canary_rules import read_rules_file
from dyorc.protocol.deployment_changes import STICKY_BY_KEY

if TYPE_CHECKING:
    from dyorc.client import Client

_console = Console(soft_wrap=True)
_warnings = Console(stderr=True, soft_wrap=True)
"""Beside the output, which may be JSON."""

_TIMEOUT_S = 900.0
"""Programs may take long to load."""
_MAX_NAMES = 8
"""Of a version's programs that a table shows; JSON has all."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The workflow, or program, as clients know it.")]


def deploy(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[PATH:WORKFLOW]", help="What to load, such as app.py:classify. Without it, versions are shown."),
    ] = None,
    version: Annotated[str, typer.Option(help="Its name; by default the next whole number.")] = "",
    group: Annotated[
        str,
        typer.Option(help="The group of orchestrators that loads it, if there are several."),
    ] = "",
    share: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Part of the requests that name no version; by default 1, and it becomes the default version."
        ),
    ] = None,
    canary: Annotated[
        float | None, typer.Option(min=0, max=100, metavar="PERCENT", help="The same in per cent: --canary 10 is --share 0.1.")
    ] = None,
    shadow: Annotated[
        float,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="It gets copies of so many per cent of the default's requests. Its answers are compared and dropped.",
        ),
    ] = 0.0,
    sticky: Annotated[
        str | None,
        typer.Option(
            metavar="HEADER|key",
            help="A client stays with one version, by the value of this header, or by its API key. Empty ends that.",
        ),
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option(
            metavar="RULES.TOML",
            exists=True,
            dir_okay=False,
            help="It gets more and more of the requests, or is rolled back, by the rules in this file.",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Share no program with other versions.")] = False,
    allow_incompatible: Annotated[
        bool, typer.Option("--allow-incompatible", help="Even if its inputs or outputs are others than the default's.")
    ] = False,
    after_replay: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Only if so many of its workflow's last recorded requests go on it as they went (see dyorc replay).",
        ),
    ] = 0,
    allow_differences: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="With --after-replay: so many of them may be different.")
    ] = 0,
    url: Url = DEFAULT_URL,
    key: Key = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Loads a version of a workflow into a running server, without a restart: `dyorc deploy app.py:classify --version 2`."""
    if allow_differences and not after_replay:
        raise ConfigurationError(
            f"--allow-differences {allow_differences} is about a replay; give --after-replay NUMBER, too, such as 1000"
        )
    with connect(url, key, ca, timeout_s=_TIMEOUT_S) as client:
        if target is None:
            is_change = version or group or shadow or fresh or allow_incompatible or after_replay or allow_differences
            if is_change or any(given is not None for given in (share, canary, sticky, judge)):
                raise ConfigurationError("name what to load, such as app.py:classify")
            status = {} if as_json else client.status()
            _show_all(client.deployments(), as_json, status.get("canaries", {}))
            if work := _work_text(status):
                _console.print(f"{work}, goes on.", markup=False)
        else:
            _say_what_is_waited_for(client)
            _show(
                client.deploy(
                    _absolute(target),
                    version=version,
                    group=group,
                    share=_share(share, canary),
                    shadow=shadow / 100,
                    sticky=None if sticky is None else sticky.lower(),
                    rules=None if judge is None else read_rules_file(judge),
                    fresh=fresh,
                    allow_incompatible=allow_incompatible,
                    after_replay=after_replay,
                    max_differences=allow_differences,
                ),
                as_json,
            )


def undeploy(
    name: Name,
    version: Annotated[str | None, typer.Option(help="Which version; without it, all of them.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Takes a version of a workflow out of service. Requests that have begun are still answered."""
    with connect(url, key, ca, timeout_s=_TIMEOUT_S) as client:
        _say_what_is_waited_for(client)
        _show(client.undeploy(name, version), as_json)


def rollback(name: Name, url: Url = DEFAULT_URL, key: Key = None, ca: Ca = None, as_json: AsJson = False) -> None:
    """Undoes the last deploy or undeploy of a workflow. Run it again to undo the one before."""
    with connect(url, key, ca, timeout_s=_TIMEOUT_S) as client:
        _say_what_is_waited_for(client)
        _show(client.rollback(name), as_json)


def _say_what_is_waited_for(client: "Client") -> None:
    """Prints which change of somebody else comes first, if there is one. A key that may not see it is not told."""
    with contextlib.suppress(PermissionDeniedError):
        if work := _work_text(client.status()):
            _warnings.print(f"Waiting for {work}. It goes on even if its client has left, and so does this one.", markup=False)


def _work_text(status: Mapping[str, Any]) -> str:
    """Returns which change a server carries out, and since when; empty if there is none."""
    work = status.get("deploying")
    return "" if work is None else f"{work['change']}, since {time_of_day(datetime.fromisoformat(work['since']).timestamp())}"


def _counts_text(traffic: dict[str, Any]) -> str:
    """Returns what a version did with its requests, and with copies of others."""
    num_refused = traffic.get("num_refused", 0)  # a server of an earlier build does not count them
    text = f"{traffic['num_ok'] + traffic['num_failed'] + num_refused} requests, {traffic['num_failed']} failed"
    text += f", {num_refused} refused{_times_text(traffic)}"
    copies = {**traffic["shadow"]}
    if copies:
        times, difference = _times_text(copies), copies.pop("last_difference")
        counts = ", ".join(f"{number} {outcome}" for outcome, number in copies.items() if not outcome.endswith("_ms"))
        text += f"; as shadow {counts}{times}" + (f" (the last: {difference})" if difference else "")
    return text


def _times_text(times: dict[str, Any]) -> str:
    return "" if times["p50_ms"] is None else f", p50 {times['p50_ms']:.1f} ms, p99 {times['p99_ms']:.1f} ms"


def _share(share: float | None, canary: float | None) -> float | None:
    if share is not None and canary is not None:
        raise ConfigurationError(
            f"--share {share:g} and --canary {canary:g} both say which part of the requests it gets; give one"
        )
    return share if canary is None else canary / 100


def _absolute(target: str) -> str:
    """Returns a target as the server finds it, if it is on this machine."""
    place, _, name = target.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") and Path(place).is_file() else target


def _show(line: dict[str, Any], as_json: bool) -> None:
    name, is_changed = line.pop("model"), line.pop("is_changed", True)
    replayed = None if as_json else line.pop("replay", None)
    if replayed is not None:
        _console.print(f"{replayed['num_replayed']} recorded requests replayed: {replayed['num_different']} different.")
        for reason, number in replayed.get("num_not_replayed", {}).items():
            _console.print(f"{number} not replayed: {reason}", markup=False)
        if num_damaged := replayed.get("num_damaged"):
            _console.print(f"{num_damaged} lines of the files are no histories: they were skipped.")
    if not is_changed and not as_json:
        _console.print(f"{name} is unchanged: version {line['default']} has this code already; --fresh loads it again.")
    _show_all({name: line}, as_json)


def _show_all(lines: dict[str, Any], as_json: bool, progress: Mapping[str, str] = {}) -> None:
    if as_json:
        _console.print_json(data=lines)
        return
    table = StackedTable("workflow", "version", "requests", "shadow", "programs", "loaded from")
    for name, line in lines.items():
        shares = {line["default"]: 1 - sum(line["shares"].values()), **line["shares"]}
        for version, details in line["versions"].items():
            part = f"{shares[version]:.0%}" if version in shares else "unloaded"
            is_default = " (default)" if version == line["default"] else ""
            copies = f"{line['shadows'][version]:.0%}" if version in line["shadows"] else ""
            names = list(details["programs"].values())
            rest = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
            programs = ", ".join(names[:_MAX_NAMES]) + rest
            table.add_row(name, version + is_default, part, copies, programs, details["target"])
    _console.print(table)
    for name, line in lines.items():
        for version, details in line["versions"].items():
            if "traffic" in details:
                _console.print(f"{name} {version}: {_counts_text(details['traffic'])}")
        if (canary := line["canary"]) is not None:
            step, steps = canary["step"], canary["steps"]
            reason = f": {progress[name]}" if name in progress else ""
            _console.print(
                f"{name}: version {canary['version']} is judged, step {step + 1} of {len(steps)} ({steps[step]:.0%}){reason}"
            )
        if (verdict := line["verdict"]) is not None:
            outcome = "promoted" if verdict["is_promoted"] else "rolled back"
            _console.print(
                f"{name}: version {verdict['version']} was {outcome} at {verdict['share']:.0%}, {time_of_day(verdict['at_s'])}: "
                f"{verdict['reason']}"
            )
        if line["sticky"]:
            by = "API key" if line["sticky"] == STICKY_BY_KEY else f"header {line['sticky']}"
            _console.print(f"{name}: the {by} of a request picks its version.")
