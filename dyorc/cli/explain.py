"""``dyorc explain``: why a request took as long as it did, as the server that answered it remembers."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from dyorc.cli.repeated_calls import MAX_ALIKE, call_notes, describe_decisions, group_alike
from dyorc.cli.server_options import DEFAULT_URL, AsJson, Ca, Key, Url, connect, time_of_day
from dyorc.cli.stacked_table import StackedTable
from dyorc.system.finite_option import finite

if TYPE_CHECKING:
    from dyorc.client import Client

_NUM_LISTED = 20
_BAR_WIDTH = 60
_MIN_BAR_WIDTH = 20
_TIMES_WIDTH = 7
_WIDE = 160
"""Columns of a terminal from which batches, replicas and reasons stand side by side."""
_MAX_SHARERS = 4

_WAITING, _QUEUED, _RUNNING, _GUESSED, _SQUASHED, _OUTSIDE = "dim", "yellow", "green", "cyan", "red", "magenta"
_LEGEND = (
    ("waits for inputs", "·", _WAITING), ("queued", "░", _QUEUED), ("running", "█", _RUNNING),
    ("running as a guess", "▓", _GUESSED), ("wrong guess", "▓", _SQUASHED), ("client", "▒", _OUTSIDE),
)  # fmt: skip


def explain(
    request_id: Annotated[str | None, typer.Argument(help="The request; without it, the slowest ones are listed.")] = None,
    slowest: Annotated[bool, typer.Option("--slowest", help="Explain the slowest request that the server remembers.")] = False,
    tail: Annotated[
        bool, typer.Option("--tail", help="Say where the time of the slowest requests went, beside typical ones.")
    ] = False,
    share: Annotated[
        float | None,
        typer.Option(
            callback=finite,
            min=0.0001,
            max=0.5,
            show_default="0.01",
            help="With --tail: the fraction of requests that count as the slowest.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --tail: only requests of this model.")] = None,
    every_call: Annotated[
        bool, typer.Option("--every-call", help="Show each turn of a loop; otherwise its calls are one row.")
    ] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Says why a request took so long: where its time went, its batches and who shared them, what was guessed."""
    given = [f"request {request_id!r}"] * (request_id is not None) + ["--slowest"] * slowest + ["--tail"] * tail
    if len(given) > 1:
        raise typer.BadParameter(f"got {' and '.join(given)}, expected one of them")
    if not tail and (unused := ["--share"] * (share is not None) + ["--model"] * (model is not None)):
        raise typer.BadParameter(f"got {' and '.join(unused)} without --tail, and only that looks at many requests")
    console = Console(soft_wrap=True, highlight=False)  # it asks for the terminal's width now
    with connect(url, key, ca) as client:
        if slowest:
            request_id = _slowest(client)
        if tail:
            record: Any = client.tail(model) if share is None else client.tail(model, share=share)
            if model is not None and not record["num_requests"]:
                client.metadata(model)  # raises if the model is unknown
            shown: list[RenderableType] = tail_table(_printable(record))
        elif request_id is None:
            record = client.requests(order="slowest", limit=_NUM_LISTED)
            shown = [_listed(_printable(record))]
        else:
            record = client.request(request_id)
            width = console.width if console.is_terminal else None
            shown = explanation(_printable(record), width, every_call=every_call)
    if as_json:
        print(json.dumps(record, indent=2))
    else:
        for part in shown:
            console.print(part)


def _slowest(client: "Client") -> str:
    requests = client.requests(order="slowest", limit=1)
    if not requests:
        print("The server remembers no request that has ended.", file=sys.stderr)
        raise typer.Exit(1)
    return requests[0]["request_id"]


def _printable(value: Any) -> Any:
    """Returns JSON without characters that a terminal would obey: clients choose ids, and errors quote what they sent."""
    match value:
        case str():
            return value if value.isprintable() else "".join([item if item.isprintable() else "\ufffd" for item in value])
        case list():
            return [_printable(item) for item in cast(list[Any], value)]
        case dict():
            return {_printable(name): _printable(item) for name, item in cast(dict[str, Any], value).items()}
        case _:
            return value


def tail_table(tail: dict[str, Any]) -> list[RenderableType]:
    """Returns what people should see of the slowest requests (`Client.tail`)."""
    if not tail["num_slowest"]:
        return [Text("The server remembers no such request that has ended.")]
    title = f"the slowest {tail['num_slowest']:,} of {tail['num_requests']:,} requests took {tail['from_ms']:.1f} ms or more, "
    columns = [Column(name, justify="right") for name in ("ms", "typical ms", "more", "cause of")]
    table = StackedTable("stage", *columns, "mostly of")
    for each in tail["stages"]:
        more = each["slowest_ms"] - each["typical_ms"]
        shown = (
            f"{each['slowest_ms']:.1f}",
            f"{each['typical_ms']:.1f}",
            f"{more:+.1f}",
            str(each["num_caused"] or ""),
            each["program"],
        )
        table.add_row(*map(Text, (each["stage"], *shown)))
    examples = ", ".join(f"{each['request_id']} ({each['duration_ms']:.1f} ms)" for each in tail["slowest"])
    return [Text(f"{title}half of all {tail['median_ms']:.1f} or less"), table, Text(f"for example {examples}", style="dim")]


def _listed(requests: list[dict[str, Any]]) -> Table:
    table = StackedTable("request", "workflow", Column("ms", justify="right"), "arrived", "outcome", "mostly")
    for request in requests:
        duration, at = f"{request['duration_ms']:.1f}", time_of_day(request["arrived_s"])
        table.add_row(
            *map(Text, (request["request_id"], request["workflow"], duration, at, request["outcome"], request["cause"]))
        )
    return table


def explanation(record: dict[str, Any], width: int | None = None, *, every_call: bool = False) -> list[RenderableType]:
    """Returns what people should see of a request: first why it took so long, then what happened.

    Args:
        width: Columns of the terminal; None for a pipe or a file, where lines may be as long as they have to be.
        every_call: Each turn of a loop has its own row; otherwise all have one together.
    """
    max_alike = sys.maxsize if every_call else MAX_ALIKE
    shown: list[RenderableType] = [*_title(record, width)]
    for number, sentence in enumerate(record["diagnosis"]):
        shown.append(Text(f"  {sentence}", style="bold" if number == 0 else ""))
    groups = group_alike(record["calls"], "program", "depth", max_alike=max_alike)
    shown += [Text(), *_timeline(record, groups, width), *_legend(width)]
    if record["decisions"] or record["notes"]:
        shown += [Text(), *_decisions(record, max_alike)]
    if record["batches"]:
        shown += [Text(), *_batches(record, groups, width)]
    return shown


def _title(record: dict[str, Any], width: int | None) -> list[Text]:
    title = Text.assemble((record["request_id"], "bold"), f": {record['workflow']}, {record['duration_ms']:.1f} ms, ")
    title.append(record["outcome"], style="" if record["outcome"] == "ok" else "red")
    if record["error"]:
        title.append(f": {record['error']}")
    origin = f"({record['transport']}, {time_of_day(record['arrived_s'])}, cell {record['cell']})"
    if width is not None and title.cell_len + 2 + len(origin) > width:
        return [title, Text(f"  {origin}", style="dim")]
    return [title.append(f"  {origin}", style="dim")]


# Timeline


class _Bar:
    """A line in which each column is a part of the request's time."""

    def __init__(self, duration_ms: float, width: int) -> None:
        self._width = width
        self._columns_per_ms = width / max(duration_ms, 1e-3)
        self._cells = [(" ", "")] * width

    def fill(self, from_ms: float, to_ms: float, sign: str, style: str) -> None:
        """Fills at least one column."""
        start = min(max(0, int(from_ms * self._columns_per_ms)), self._width - 1)
        end = min(max(start + 1, round(to_ms * self._columns_per_ms)), self._width)
        self._cells[start:end] = [(sign, style)] * (end - start)

    def text(self) -> Text:
        """Returns the line."""
        return Text.assemble(*self._cells)


def _timeline(record: dict[str, Any], groups: list[list[dict[str, Any]]], width: int | None) -> Iterator[Text]:
    """Yields a line for each piece of the client's and each group of calls, and the notes of one below it if they do not fit."""
    duration_ms = record["duration_ms"]
    pieces = [piece for piece in record["path"] if piece["stage"] in ("reading", "writing", "taking")]
    names = [f"client: {piece['stage']}" for piece in pieces] + [_name(calls) for calls in groups]
    longest = max(map(cell_len, names), default=0)
    room = _BAR_WIDTH if width is None else width - longest - _TIMES_WIDTH - 4
    bar_width = max(_MIN_BAR_WIDTH, min(_BAR_WIDTH, room))
    scale = f"{duration_ms:.4g} ms"
    yield Text(f" {'':{longest}} 0{scale:>{bar_width - 1}} {'ms':>{_TIMES_WIDTH}}", style="bold")
    for piece in pieces:
        bar = _Bar(duration_ms, bar_width)
        bar.fill(piece["from_ms"], piece["to_ms"], "▒", _OUTSIDE)
        yield _row(f"client: {piece['stage']}", longest, bar, piece["to_ms"] - piece["from_ms"])
    for calls in groups:
        bar = _Bar(duration_ms, bar_width)
        for call in calls:
            end_ms = duration_ms if call["ended_ms"] is None else call["ended_ms"]
            _fill_call(bar, call, record["batches"], end_ms)
        end_ms = max(duration_ms if call["ended_ms"] is None else call["ended_ms"] for call in calls)
        found = _call_notes(calls[0]) if len(calls) == 1 else call_notes(calls, duration_ms)
        row, notes = _row(_name(calls), longest, bar, end_ms - calls[0]["asked_ms"]), ", ".join(found)
        if not notes or width is None or row.cell_len + 2 + cell_len(notes) <= width:
            yield row.append(f"  {notes}" if notes else "", style="dim")
        else:
            yield row
            yield Text(f"   {notes}", style="dim")


def _name(calls: list[dict[str, Any]]) -> str:
    return calls[0]["program"] if len(calls) == 1 else f"{calls[0]['program']} x {len(calls)}"


def _row(name: str, longest: int, bar: _Bar, took_ms: float) -> Text:
    padding = " " * (longest - cell_len(name))
    return Text(f" {name}{padding} ").append_text(bar.text()).append(f" {took_ms:>{_TIMES_WIDTH}.1f}")


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


def _legend(width: int | None) -> Iterator[Text]:
    line = Text(" ")
    for name, sign, style in _LEGEND:
        entry = Text.assemble(" ", (sign, style), (f" {name}  ", "dim"))
        if width is not None and line.cell_len + entry.cell_len > width:
            yield line
            line = Text(" ")
        line.append_text(entry)
    yield line


# What else happened


def _decisions(record: dict[str, Any], max_alike: int) -> list[Text]:
    """Returns a line for each decision or group of them, and for each note, in the order of the times with which they begin."""
    lines: list[tuple[float, Text]] = []
    for decision, *more in group_alike(record["decisions"], "site", max_alike=max_alike):
        if more:
            text = f"  {decision['opened_ms']:.1f} ms: {describe_decisions([decision, *more])}"
            lines.append((decision["opened_ms"], Text(text)))
            continue
        at_ms = decision["opened_ms"] if decision["decided_ms"] is None else decision["decided_ms"]
        text = f"  {at_ms:.1f} ms: decision at {decision['site']}: {decision['outcome'] or 'open to the end'}"
        for outcome, probability in decision["followed"].items():
            text += f"; guessed {outcome} (p = {probability:.2f})"
            if gain_ms := decision["gains_ms"].get(outcome):
                text += f", {'saved' if gain_ms > 0 else 'cost others'} {abs(gain_ms):.1f} ms"
        lines.append((at_ms, Text(text)))
    lines += [(note["at_ms"], Text(f"  {note['at_ms']:.1f} ms: {note['text']}")) for note in record["notes"]]
    return [line for _, line in sorted(lines, key=lambda entry: entry[0])]  # a decision may be taken after one that began later


def _batches(record: dict[str, Any], groups: list[list[dict[str, Any]]], width: int | None) -> list[RenderableType]:
    """Returns a table; in a narrow terminal, replicas and reasons follow it, as they are much longer than figures. Batches of
    calls that are one row of the timeline are one here, with their mean times."""
    numbers = [Column(name, justify="right") for name in ("sent", "began", "ended", "gather", "infer", "publish")]
    is_narrow = width is not None and width < _WIDE
    headers = ("calls", *numbers) if is_narrow else ("replica", "calls", *numbers, "why, and for whom else")
    table = StackedTable("batch", *headers)
    below: list[Text] = []
    for calls in groups:
        if len(calls) > 1:
            shown, size, why = _mean_batch(calls, record["batches"])
            table.add_row(*map(Text, (_name(calls), size, *shown) if is_narrow else (_name(calls), "", size, *shown, why)))
    looped = {name for calls in groups if len(calls) > 1 for call in calls for name in call["batches"]}
    single = [(name, batch) for name, batch in record["batches"].items() if name not in looped]
    for name, batch in sorted(single, key=lambda entry: entry[1]["sent_ms"]):
        times = [
            batch["sent_ms"],
            batch["started_ms"],
            batch["ended_ms"],
            batch["gather_ms"],
            batch["infer_ms"],
            batch["publish_ms"],
        ]
        size = f"{batch['size']}, {batch['num_guesses']} guessed" if batch["num_guesses"] else str(batch["size"])
        shown, why = ["" if ms is None else f"{ms:.1f}" for ms in times], _why(batch, record["number"])
        if is_narrow:
            table.add_row(*map(Text, (name, size, *shown)))
            below += [Text(f"{name} on {batch['replica']}:"), Text(f"  {why}")]
        else:
            table.add_row(*map(Text, (name, batch["replica"], size, *shown, why)))
    return [table, *below]


def _mean_batch(calls: list[dict[str, Any]], batches: dict[str, Any]) -> tuple[list[str], str, str]:
    """Returns times of the batches of a group of calls, their sizes, and why most of them were formed. Of the times on a replica,
    the mean."""
    own = [batches[name] for name in dict.fromkeys(name for call in calls for name in call["batches"])]
    if not own:
        return [""] * 6, "", "in no batch"
    ends = [[ms for batch in own if (ms := batch[name]) is not None] for name in ("sent_ms", "started_ms", "ended_ms")]
    first = [f"{min(ms):.1f}" if ms else "" for ms in ends[:2]]
    means = [f"{sum(batch[name] for batch in own) / len(own):.1f}" for name in ("gather_ms", "infer_ms", "publish_ms")]
    sizes = sorted(batch["size"] for batch in own)
    size = str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    reason, number = Counter(batch["reason"] for batch in own).most_common(1)[0]
    return [*first, f"{max(ends[2]):.1f}" if ends[2] else "", *means], size, f"{number} of {len(own)}: {reason}"


def _why(batch: dict[str, Any], own_number: int) -> str:
    others = [
        request["request_id"] or f"#{request['number']}" for request in batch["requests"] if request["number"] != own_number
    ]
    more = f" and {len(others) - _MAX_SHARERS} more" if len(others) > _MAX_SHARERS else ""
    shared = f"; with {', '.join(others[:_MAX_SHARERS])}{more}" if others else ""
    moves = "".join(f"; {move['num_bytes']:,} bytes by {move['tier']}, {move['took_ms']:.1f} ms" for move in batch["moves"])
    return batch["reason"] + shared + moves
