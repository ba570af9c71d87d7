"""Whether a table meets the goals, and where it does not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.table.goals import Miss, goals, latency_misses, our_cell
from benchmarks.table.rate_ratios import rate_ratios
from benchmarks.table.reasons import read_reasons, reasons_for
from benchmarks.table.records import Highest, Table, read_table, write_table
from tests.unit.benchmarks.made_tables import cell, large_table, table, workload


def with_cell(changed: Any, **changes: Any) -> Table:
    """Returns the table with another cell in place of the one of the same system and load."""
    found = table()
    place = next(at for at, old in enumerate(found.cells) if (old.system, old.load) == (changed.system, changed.load))
    cells = [*found.cells[:place], changed, *found.cells[place + 1 :]]
    return msgspec.structs.replace(found, cells=cells, **changes)


def highest(**rates: float | tuple[float, bool]) -> list[Highest]:
    pairs = {system: rate if isinstance(rate, tuple) else (rate, False) for system, rate in rates.items()}
    return [
        Highest(workload="cascade", system=system, rps=rps, limited_by_client=limited) for system, (rps, limited) in pairs.items()
    ]


def on_devices(found: Table) -> Table:
    return msgspec.structs.replace(found, on_devices=True)


def reached(found: Table) -> list[tuple[bool, str]]:
    return [(goal.is_met, goal.said) for goal in goals(found)]


def test_all_goals_are_met() -> None:
    assert reached(table()) == [(True, "6 of 6"), (True, "1 of 1")]
    assert reached(on_devices(table())) == [(True, "6 of 6"), (True, "1 of 1"), (True, "2 of 2")]


@pytest.mark.parametrize(("num_slower", "is_met"), [(0, True), (4, True), (5, False)])
def test_in_38_of_42_cells_dyorc_is_to_be_faster_than_every_peer(num_slower: int, is_met: bool) -> None:
    names = ("cascade", "ocr", "guarded", "router", "loop", "chain", "fanout")
    places = [(name, load, figure) for name in names for load in ("low", "medium", "high") for figure in ("p50", "p99")]
    slow = set(places[::8][:num_slower])
    cells: list[Any] = []
    for name, load in dict.fromkeys((name, load) for name, load, _ in places):
        p50_ms, p99_ms = (3.0 if (name, load, figure) in slow else 1.0 for figure in ("p50", "p99"))
        cells += [cell("dyorc", p50_ms, 10 * p99_ms, name=name, load=load), cell("ray", 2.0, 20.0, name=name, load=load)]
    full = table(workloads=[workload(name) for name in names], cells=cells)

    for found, wanted in ((full, is_met), (on_devices(full), num_slower == 0)):
        goal = goals(found)[0]
        assert (goal.is_met, goal.said, len(goal.misses)) == (wanted, f"{42 - num_slower} of 42", num_slower)
    assert "at least 38 of 42 cells" in goals(full)[0].name


def test_a_peer_that_is_faster_somewhere_is_a_miss() -> None:
    (miss,) = latency_misses(with_cell(cell("triton", 5.0, 3.0, load="medium")))

    assert miss == Miss(workload="cascade", load="medium", figure="p99_ms", against="triton", ours=9.0, theirs=3.0, ratio=3.0)


def test_a_peer_that_is_as_fast_is_a_miss() -> None:
    misses = latency_misses(with_cell(cell("ray", 4.4, 99.0)))

    assert [(miss.load, miss.figure, miss.against, miss.ratio) for miss in misses] == [("low", "p50_ms", "ray", 1.0)]


@pytest.mark.parametrize(("trouble", "counts"), [({"failed": 11}, False), ({"failed": 10}, True), ({"wrong": 1}, False)])
def test_fast_errors_do_not_count_as_answers(trouble: dict[str, int], counts: bool) -> None:
    found = with_cell(cell("ray", 1.0, 2.0, **trouble))

    assert bool(latency_misses(found)) is counts
    assert ("left out" in goals(found)[0].said) is not counts


def test_our_own_errors_are_a_miss() -> None:
    misses = latency_misses(with_cell(cell("dyorc", 1.0, 2.0, wrong=3)))

    assert [(miss.figure, miss.why) for miss in misses] == [
        ("p50_ms", "3 wrong and 0 failed of 1000 requests"),
        ("p99_ms", "3 wrong and 0 failed of 1000 requests"),
    ]


def test_a_figure_of_ours_that_was_not_measured_is_a_miss() -> None:
    found = table()
    found = msgspec.structs.replace(found, cells=[one for one in found.cells if one.system != "dyorc"], highest=[])

    latency, rate, oracle = goals(on_devices(found))

    assert (latency.is_met, latency.said) == (False, "0 of 6")
    assert (rate.is_met, rate.said) == (False, "0 of 1")
    assert not oracle.is_met
    assert not any(goal.is_met for goal in goals(table(workloads=[], cells=[], highest=[])))


@pytest.mark.parametrize(
    ("rates", "is_met", "is_met_on_devices", "ratio"),
    [
        ({"dyorc": 480.0, "ray": 150.0, "triton": 400.0}, True, True, 1.2),
        ({"dyorc": 479.0, "ray": 150.0, "triton": 400.0}, True, False, 1.1975),
        ({"dyorc": 401.0, "triton": 400.0}, True, False, 1.0025),
        ({"dyorc": 400.0, "triton": 400.0}, False, False, 1.0),
        ({"dyorc": 5.0, "ray": 0.0}, True, True, None),
        ({"dyorc": 0.0, "ray": 0.0}, False, False, None),
        ({"dyorc": (900.0, True), "ray": 300.0}, True, True, 3.0),
        ({"dyorc": 900.0, "ray": 300.0, "triton": (100.0, True)}, False, False, 3.0),
    ],
)
def test_the_highest_rates_are_compared(
    rates: dict[str, Any], is_met: bool, is_met_on_devices: bool, ratio: float | None
) -> None:
    found = table(highest=highest(**rates))

    assert goals(found)[1].is_met is is_met
    assert goals(on_devices(found))[1].is_met is is_met_on_devices
    (entry,) = rate_ratios(found)
    assert entry.ratio == (None if ratio is None else pytest.approx(ratio))


def test_all_workloads_need_the_highest_rate_and_on_devices_five() -> None:
    rates = [Highest(workload="chain", system=system, rps=100.0) for system in ("dyorc", "ray")]
    found = table(workloads=[workload(), workload("chain")], highest=[*table().highest, *rates])

    assert reached(found)[1] == (False, "1 of 2")
    assert reached(on_devices(found))[1] == (True, "1 of 1")
    assert [(entry.workload, entry.ratio) for entry in rate_ratios(found)] == [("cascade", 2.25), ("chain", 1.0)]


def test_latency_on_devices_under_medium_load_is_compared_with_the_oracles() -> None:
    found = on_devices(with_cell(cell("dyorc", 5.1, 9.0, load="medium")))

    goal = goals(found)[2]

    assert goal.said == "1 of 2"
    assert [(miss.figure, miss.against, miss.ratio) for miss in goal.misses] == [("p50_ms", "oracle", pytest.approx(1.275))]
    assert goals(on_devices(with_cell(cell("dyorc", 5.1, 9.0, load="high"))))[2].is_met


def test_misses_are_shown_with_their_reasons(tmp_path: Path) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text('chain = "a"\n"chain/low" = "b"\n"chain/triton/low" = "c"\n', encoding="utf-8")
    reasons = read_reasons(path)

    def of(*misses: tuple[str, str, str]) -> list[tuple[str, str]]:
        found = [Miss(workload=name, load=load, figure="p50_ms", against=against) for name, load, against in misses]
        return list(reasons_for(reasons, found).items())

    assert of(("chain", "high", "ray"), ("loop", "", ""), ("chain", "high", "triton")) == [("chain", "a")]
    assert of(("chain", "low", "triton"), ("chain", "low", "ray")) == [("chain/triton/low", "c"), ("chain/low", "b")]
    assert read_reasons(tmp_path / "none.toml") == {}


@pytest.mark.parametrize("content", ["chain = 3", "not TOML at all"])
def test_malformed_reasons_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(ValueError, match=r"reasons\.toml"):
        read_reasons(path)


def test_tables_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results" / "table.json"
    write_table(large_table(), path)

    assert read_table(path) == large_table()
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(table(), schema=9)))
    with pytest.raises(ValueError, match="schema 9"):
        read_table(path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="not a table"):
        read_table(path)


def test_the_better_mode_is_ahead_of_all_peers_in_more_figures() -> None:
    replicas, process, peer = cell("dyorc", 9.2, 15.0), cell("dyorc_cell", 8.0, 19.0), cell("mosec", 8.2, 20.0)
    found = our_cell({"dyorc": replicas, "dyorc_cell": process, "mosec": peer})
    assert found is process, "ahead in both, though its product is the higher one"
    slower = cell("mosec", 7.0, 20.0)
    assert our_cell({"dyorc": replicas, "dyorc_cell": process, "mosec": slower}) is replicas, "both are ahead in one"
    assert our_cell({"dyorc": replicas, "dyorc_cell": process}) is replicas, "there is no peer"
