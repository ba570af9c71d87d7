"""``dyorc explain``: why a request took as long as it did, as the server that answered it remembers."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import typer
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from dyorc.cli.server_options import DEFAULT_URL, AsJson, Ca, Key, Url, key_or_default, verify_of
from dyorc.cli.stacked_table import StackedTable

_NUM_LISTED = 20
_BAR_WIDTH = 60
_MAX_SHARERS = 4

_WAITING, _QUEUED, _RUNNING, _GUESSED, _SQUASHED, _OUTSIDE = "dim", "yellow", "green", "cyan", "red", "magenta"
_LEGEND = (
    ("waits for inputs", "·", _WAITING), ("queued", "░", _QUEUED), ("running", "█", _RUNNING),
    ("running as a guess", "▓", _GUESSED), ("wrong guess", "▓", _SQUASHED), ("client", "▒", _OUTSIDE),
)  # fmt: skip


def explain(
    request_id: Annotated[str | None, typer.Argument(help="The request; without it, the slowest ones are listed.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Says why a request took so long: where its time went, its batches and who shared them, what was guessed."""
    from dyorc.client import Client  # here, because few commands need it

    with Client(url, api_key=key_or_default(key), verify=verify_of(ca)) as client:
        if request_id is None:
            found: Any = client.requests(order="slowest", limit=_NUM_LISTED)
            shown = [_listed(_printable(found))]
        else:
            found = client.request(request_id)
            shown = explanation(_printable(found))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        console = Console(soft_wrap=True, highlight=False)  # it asks for the terminal's width now
        for one in shown:
            console.print(one)


def _printable(value: Any) -> Any:
    """Returns JSON without characters that a terminal would obey: clients choose ids, and errors quote what they sent."""
    match value:
        case str():
            return value if value.isprintable() else "".join([one if one.isprintable() else "\ufffd" for one in value])
        case list():
            return [_printable(one) for one in cast(list[Any], value)]
        case dict():
            return {_printable(name): _printable(one) for name, one in cast(dict[str, Any], value).items()}
        case _:
            return value


def _listed(requests: list[dict[str, Any]]) -> Table:
    table = StackedTable("request", "workflow", Column("ms", justify="right"), "arrived", "outcome", "mostly")
    for one in requests:
        duration, at = f"{one['duration_ms']:.1f}", _time_of_day(one["arrived_s"])
        table.add_row(*map(Text, (one["request_id"], one["workflow"], duration, at, one["outcome"], one["cause"])))
    return table


def explanation(found: dict[str, Any]) -> list[RenderableType]:
    """Returns what people should see of a request: first why it took so long, then what happened."""
    shown: list[RenderableType] = [_title(found)]
    for number, sentence in enumerate(found["diagnosis"]):
        shown.append(Text(f"  {sentence}", style="bold" if number == 0 else ""))
    shown += [Text(), _timeline(found), _legend()]
    if found["decisions"] or found["notes"]:
        shown += [Text(), *_decisions(found)]
    if found["batches"]:
        shown += [Text(), _batches(found)]
    return shown


def _title(found: dict[str, Any]) -> Text:
    title = Text.assemble((found["request_id"], "bold"), f": {found['workflow']}, {found['duration_ms']:.1f} ms, ")
    title.append(found["outcome"], style="" if found["outcome"] == "ok" else "red")
    if found["error"]:
        title.append(f": {found['error']}")
    title.append(f"  ({found['transport']}, {_time_of_day(found['arrived_s'])}, cell {found['cell']})", style="dim")
    return title


def _time_of_day(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%H:%M:%S")


# Timeline


class _Bar:
    """A line in which each column is a part of the request's time."""

    def __init__(self, duration_ms: float) -> None:
        self._columns_per_ms = _BAR_WIDTH / max(duration_ms, 1e-3)
        self._cells = [(" ", "")] * _BAR_WIDTH

    def fill(self, from_ms: float, to_ms: float, sign: str, style: str) -> None:
        """Fills at least one column."""
        start = min(max(0, int(from_ms * self._columns_per_ms)), _BAR_WIDTH - 1)
        end = min(max(start + 1, round(to_ms * self._columns_per_ms)), _BAR_WIDTH)
        self._cells[start:end] = [(sign, style)] * (end - start)

    def text(self) -> Text:
        """Returns the line."""
        return Text.assemble(*self._cells)


def _timeline(found: dict[str, Any]) -> Table:
    duration_ms = found["duration_ms"]
    scale = f"0{f'{duration_ms:.4g} ms':>{_BAR_WIDTH - 1}}"
    table = Table("", scale, Column("ms", justify="right"), "", box=None, padding=(0, 1))
    for piece in found["path"]:
        if piece["stage"] in ("reading", "writing", "taking"):
            bar = _Bar(duration_ms)
            bar.fill(piece["from_ms"], piece["to_ms"], "▒", _OUTSIDE)
            table.add_row(Text(f"client: {piece['stage']}"), bar.text(), f"{piece['to_ms'] - piece['from_ms']:.1f}", "")
    for call in found["calls"]:
        bar = _Bar(duration_ms)
        end_ms = duration_ms if call["ended_ms"] is None else call["ended_ms"]
        _fill_call(bar, call, found["batches"], end_ms)
        notes = Text(", ".join(_call_notes(call)), style="dim")
        table.add_row(Text(call["program"]), bar.text(), f"{end_ms - call['asked_ms']:.1f}", notes)
    return table


def _fill_call(bar: _Bar, call: dict[str, Any], batches: dict[str, Any], end_ms: float) -> None:
    queued_ms = end_ms if call["queued_ms"] is None else call["queued_ms"]
    if queued_ms > call["asked_ms"]:
        bar.fill(call["asked_ms"], queued_ms, "·", _WAITING)
    if end_ms > queued_ms:
        bar.fill(queued_ms, end_ms, "░", _QUEUED)
    for name in call["batches"]:
        batch = batches[name]
        until_ms = end_ms if batch["ended_ms"] is None else batch["ended_ms"]
        started_ms = batch["started_ms"]
        if started_ms is None:
            continue
        if call["outcome"] == "squashed":
            bar.fill(started_ms, until_ms, "▓", _SQUASHED)
            continue
        certain_ms = min(until_ms, call["committed_ms"] or 0.0) if call["is_guess"] else started_ms
        bar.fill(started_ms, until_ms, "█", _RUNNING)
        if certain_ms > started_ms:
            bar.fill(started_ms, certain_ms, "▓", _GUESSED)


def _call_notes(call: dict[str, Any]) -> list[str]:
    notes = [f"under {call['branch']}"] if call["branch"] else []
    if call["is_guess"]:
        notes.append("guess, wrong" if call["outcome"] == "squashed" else "guess")
    if call["was_cold"]:
        notes.append("cold")
    if call["is_repeat"]:
        notes.append("again, its result was lost")
    if len(call["batches"]) > 1:
        notes.append(f"{len(call['batches'])} tries")
    if call["outcome"] not in ("done", "squashed"):
        notes.append(f"{call['outcome']} {call['error']}".strip())
    return notes


def _legend() -> Text:
    return Text.assemble("  ", *[part for name, sign, style in _LEGEND for part in ((sign, style), (f" {name}   ", "dim"))])


# What else happened


def _decisions(found: dict[str, Any]) -> list[Text]:
    lines: list[Text] = []
    for one in found["decisions"]:
        at_ms = one["opened_ms"] if one["decided_ms"] is None else one["decided_ms"]
        text = f"  {at_ms:.1f} ms: decision at {one['site']}: {one['outcome'] or 'open to the end'}"
        for outcome, probability in one["followed"].items():
            text += f"; guessed {outcome} (p = {probability:.2f})"
            if gain_ms := one["gains_ms"].get(outcome):
                text += f", {'saved' if gain_ms > 0 else 'cost others'} {abs(gain_ms):.1f} ms"
        lines.append(Text(text))
    return lines + [Text(f"  {note['at_ms']:.1f} ms: {note['text']}") for note in found["notes"]]


def _batches(found: dict[str, Any]) -> Table:
    numbers = [Column(name, justify="right") for name in ("sent", "began", "ended", "gather", "infer", "publish")]
    table = StackedTable("batch", "replica", "calls", *numbers, "why, and for whom else")
    for name, one in sorted(found["batches"].items(), key=lambda entry: entry[1]["sent_ms"]):
        times = [one["sent_ms"], one["started_ms"], one["ended_ms"], one["gather_ms"], one["infer_ms"], one["publish_ms"]]
        size = f"{one['size']}, {one['num_guesses']} guessed" if one["num_guesses"] else str(one["size"])
        shown = ["" if ms is None else f"{ms:.1f}" for ms in times]
        table.add_row(*map(Text, (name, one["replica"], size, *shown, _why(one, found["number"]))))
    return table


def _why(batch: dict[str, Any], own_number: int) -> str:
    others = [one["request_id"] or f"#{one['number']}" for one in batch["requests"] if one["number"] != own_number]
    more = f" and {len(others) - _MAX_SHARERS} more" if len(others) > _MAX_SHARERS else ""
    shared = f"; with {', '.join(others[:_MAX_SHARERS])}{more}" if others else ""
    moves = "".join(f"; {one['num_bytes']:,} bytes by {one['tier']}, {one['took_ms']:.1f} ms" for one in batch["moves"])
    return batch["reason"] + shared + moves
