"""`dyorc explain` and `dyorc trace` show what a server remembers, and clients get the same."""

import asyncio
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from dyorc.cli.explain import explanation
from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.client import AsyncClient, Client
from dyorc.engine.request_trace import DecisionTrace, TraceNote
from dyorc.errors import UnknownModelError, UnknownRequestError
from tests.integration.test_record_routes import Served, ended, served
from tests.unit.telemetry.stories import batch, call, ns, record

__all__ = ["served"]


async def run(served: Served, *arguments: str, who: str = "operator") -> Result:
    """Runs the command line against the server."""
    environment = {"DYORC_API_KEY": served.keys[who], "COLUMNS": "300", "NO_COLOR": "1"}
    runner = CliRunner(env=environment)
    return await asyncio.to_thread(runner.invoke, app, [*arguments, "--url", served.url], catch_exceptions=False)


async def test_a_request_is_explained_worst_first(served: Served) -> None:
    here, _ = served.stores
    small = call(1, "small", 2, 2, 20, batches=[batch("small", 2, 4, 20, size=3, requests=[1, 2, 9], reason="full")])
    guess = call(
        2, "polish", 3, 3, 150, decision=0, branch="sure", is_guess=True, outcome="squashed",
        batches=[batch("polish", 5, 5, 150, num_guesses=1)],
    )  # fmt: skip
    right = call(3, "polish", 20, 20, 170, decision=0, branch="unsure", batches=[batch("polish", 150, 150, 170)])
    decision = DecisionTrace("app.py:7", ns(3), [1], decided_ns=ns(20), followed={"sure": 0.9}, outcome="unsure")
    decision.gains_ms = {"sure": -130.0}
    notes = [TraceNote(ns(30), "lost", "small")]
    here.take(ended(2, "guests"))
    here.take(record(170, [small, guess, right], decisions=[decision], notes=notes, tenant="team"))
    lines = (await run(served, "explain", "r1")).stdout.splitlines()
    assert lines[0].startswith("r1: classify, 170.0 ms, ok  (http, ")
    assert lines[1] == "  130 ms of 170 ms: the call of 'polish' waited for a replica that was running wrong guesses"
    text = "\n".join(lines)
    assert "decision at app.py:7: unsure; guessed sure (p = 0.90), cost others 130.0 ms" in text
    assert "30.0 ms: the result of small was lost with its replica; it is computed again" in text
    assert "full; with r2, #9" in text
    (wrong,) = [line for line in lines if "guess, wrong" in line]
    assert 40 < wrong.count("▓") < 60
    (first,) = [line for line in lines if line.lstrip().startswith("small ")]
    assert "░" in first
    assert first.count("█") == 6


async def test_decisions_and_notes_are_in_the_order_of_their_times(served: Served) -> None:
    here, _ = served.stores
    late = DecisionTrace("app.py:7", ns(3), [1], decided_ns=ns(16.2), outcome="sure")
    early = DecisionTrace("app.py:9", ns(5), [1], decided_ns=ns(7.3), outcome="True")
    notes = [TraceNote(ns(10), "lost", "small")]
    here.take(record(170, [call(1, "small", 2, 2, 20)], decisions=[late, early], notes=notes, tenant="team"))
    lines = (await run(served, "explain", "r1")).stdout.splitlines()
    begins = [line.split(" ms: ")[0] for line in lines if "decision at" in line or "is computed again" in line]
    assert begins == ["  7.3", "  10.0", "  16.2"]


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_a_terminal_cuts_and_wraps_nothing(served: Served, width: int) -> None:
    here, _ = served.stores
    program = "classify_image_tiles"
    tile = call(1, program, 2, 2, 20, batches=[batch(program, 2, 4, 20, size=3, requests=[1, 2, 9], reason="full")])
    guess = call(
        2, "polish", 3, 3, 150, decision=0, branch="sure", is_guess=True, outcome="squashed",
        batches=[batch("polish", 5, 5, 150, num_guesses=1)],
    )  # fmt: skip
    here.take(record(170, [tile, guess], tenant="team", request_id="4" * 36))
    (await run(served, "explain", "--slowest")).stdout.index(program)
    found = (await served.get(f"/requests/{'4' * 36}")).json()
    console = Console(width=width, force_terminal=True, no_color=True, soft_wrap=True, highlight=False, file=io.StringIO())
    for part in explanation(found | {"diagnosis": []}, width):
        console.print(part)
    text = re.sub("\x1b.*?m", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("publish") == 1
    assert text.count("guess, wrong") == 1
    assert text.count("▓") > 15


async def test_the_turns_of_a_loop_are_one_row_that_unfolds(served: Served) -> None:
    here, _ = served.stores
    turns = [
        call(
            at,
            "decode",
            2 * at,
            2 * at,
            2 * at + 2,
            batches=[batch("decode", 2 * at, 2 * at, 2 * at + 2, size=1 + at % 3)],
            is_guess=at > 18,
        )
        for at in range(1, 21)
    ]
    here.take(record(60, [*turns, call(21, "speak", 42, 42, 60, batches=[batch("speak", 42, 42, 60)])], tenant="team"))
    text = (await run(served, "explain", "r1")).stdout
    rows = [line for line in text.splitlines() if "decode x" in line]
    assert len(rows) == 2, "one in the timeline, one among the batches"
    assert rows[0].startswith(" decode x 20 ")
    assert "2.0 ms each, at most 2.0, 2 guesses made, 0 wrong" in rows[0]
    assert "1 to 3" in rows[1]
    assert "20 of 20: " in rows[1]
    whole = (await run(served, "explain", "r1", "--every-call")).stdout
    assert sum(line.startswith(" decode ") for line in whole.splitlines()) == 20


async def test_the_slowest_request_is_explained_without_its_id(served: Served) -> None:
    here, _ = served.stores
    nothing = await run(served, "explain", "--slowest")
    assert (nothing.exit_code, nothing.stderr) == (1, "The server remembers no request that has ended.\n")
    for number, duration_ms in ((1, 20), (2, 170), (3, 90)):
        calls = [call(1, "small", 2, 2, duration_ms)]
        here.take(record(duration_ms, calls, tenant="team", request_id=f"r{number}", number=number))
    assert (await run(served, "explain", "--slowest")).stdout.startswith("r2: classify, 170.0 ms")
    both = await run(served, "explain", "r1", "--slowest")
    assert both.exit_code == 2
    assert "expected one of them" in both.stderr


async def test_a_request_that_was_refused_says_why(served: Served) -> None:
    here, _ = served.stores
    refused = record(2, tenant="team", outcome="capacity", error="256 requests are in flight, the server takes 256", number=-1)
    refused.story, refused.ended_ns = None, refused.started_ns
    here.take(refused)
    lines = (await run(served, "explain", "r1")).stdout.splitlines()
    assert lines[0].startswith("r1: classify, 2.0 ms, capacity: 256 requests are in flight")
    assert lines[1] == "  refused before it ran: 256 requests are in flight, the server takes 256"
    assert lines[2] == "  1 ms of 2 ms: the client was sending the request"
    found = (await served.get("/requests?outcome=failed")).json()
    assert [(one["request_id"], one["outcome"], one["num_calls"]) for one in found["requests"]] == [("r1", "capacity", 0)]


async def test_without_a_request_the_slowest_are_listed(served: Served) -> None:
    here, there = served.stores
    here.take(ended(1, "team", duration_ms=30))
    there.take(ended(2, "team", duration_ms=40))
    lines = (await run(served, "explain")).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["request", "r2", "r1"]


async def test_ids_cannot_tell_the_terminal_what_to_do(served: Served) -> None:
    here, _ = served.stores
    here.take(ended(1, "team", request_id="a\x1b[31mb", outcome="internal", error="two\nlines"))
    shown = (await run(served, "explain")).stdout
    assert "a\ufffd[31mb" in shown
    shown = (await run(served, "explain", "a\x1b[31mb")).stdout
    assert shown.startswith("a\ufffd[31mb: ")
    assert "two\ufffdlines" in shown
    assert "\x1b" not in shown


async def test_json_is_what_the_server_says(served: Served) -> None:
    here, _ = served.stores
    here.take(ended(1, "team"))
    found = json.loads((await run(served, "explain", "r1", "--json")).stdout)
    assert found["request_id"] == "r1"
    assert found["stages"]


async def test_an_unknown_request(served: Served) -> None:
    with pytest.raises(UnknownRequestError, match="no record of request 'r1'"):
        await run(served, "explain", "r1")


async def test_a_trace_is_written_to_a_file(served: Served, tmp_path: Path) -> None:
    here, _ = served.stores
    here.take(ended(1, "team"))
    file = tmp_path / "found.json"
    result = await run(served, "trace", "--seconds", "60", "-o", str(file))
    assert result.stdout == f"{file}: 1 requests of the last 60 s\n"
    assert any(event.get("cat") == "request" for event in json.loads(file.read_text())["traceEvents"])


async def test_both_clients_ask_for_records(served: Served) -> None:
    here, _ = served.stores
    here.take(ended(1, "team", duration_ms=30, request_id="a/b ü"))
    here.take(ended(2, "team", outcome="internal"))

    def use() -> None:
        with Client(served.url, api_key=served.keys["user"]) as client:
            assert [one["number"] for one in client.requests()] == [2, 1]
            assert client.request("a/b ü")["number"] == 1
            assert client.trace(60)["otherData"]["num_requests"] == 2

    await asyncio.to_thread(use)
    async with AsyncClient(served.url, api_key=served.keys["user"]) as client:
        assert [one["number"] for one in await client.requests(order="slowest", limit=1)] == [1]
        assert [one["number"] for one in await client.requests(outcome="failed")] == [2]
        assert await client.requests(workflow="other") == []
        assert (await client.request("a/b ü"))["number"] == 1
        assert (await client.trace())["otherData"]["num_requests"] == 2


async def test_the_slowest_are_set_beside_typical_ones(served: Served) -> None:
    here, _ = served.stores
    for number in range(10, 30):
        here.take(ended(number, "team"))
    here.take(ended(9, "team", duration_ms=100))
    lines = (await run(served, "explain", "--tail")).stdout.splitlines()
    assert lines[0] == "the slowest 1 of 21 requests took 100.0 ms or more, half of all 20.0 or less"
    (engine,) = [line for line in lines if line.lstrip().startswith("engine")]
    assert engine.split()[-1] == "1"
    assert lines[-1] == "for example r9 (100.0 ms)"
    answer = json.loads((await run(served, "explain", "--tail", "--share", "0.5", "--json")).stdout)
    assert answer["num_slowest"] == 11
    async with AsyncClient(served.url, api_key=served.keys["operator"]) as client:
        assert await client.tail(share=0.5) == answer


async def test_without_requests_there_is_no_tail(served: Served) -> None:
    assert "remembers no such request" in (await run(served, "explain", "--tail", "--model", "quadruple")).stdout


async def test_the_tail_of_an_unknown_model_is_refused(served: Served) -> None:
    with pytest.raises(UnknownModelError, match="unknown model 'missing'"):
        await run(served, "explain", "--tail", "--model", "missing")
    served.stores[0].take(ended(1, "team", workflow="undeployed"))
    text = (await run(served, "explain", "--tail", "--model", "undeployed")).stdout
    assert text.startswith("the slowest 1 of 1 requests"), "its requests are still remembered"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--share", "0.01"], "--share"), (["--slowest", "--model", "quadruple"], "--model"), (["r1", "--share", "0.5"], "--share")],
)
async def test_options_of_the_tail_are_refused_without_it(served: Served, arguments: list[str], named: str) -> None:
    refused = await run(served, "explain", *arguments)
    assert refused.exit_code == 2
    assert f"got {named} without --tail" in refused.output


async def test_one_thing_is_explained_at_a_time(served: Served) -> None:
    refused = await run(served, "explain", "r1", "--tail")
    assert refused.exit_code == 2
    assert "got request 'r1' and --tail, expected one of them" in refused.output
