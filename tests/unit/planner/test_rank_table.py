"""The table of ranks: those of which the same is said are one row."""

import pytest
from rich.console import Console

from dyorc.cli.rank_table import rank_table, ranks_text
from dyorc.planner.cluster import even_cluster, uneven_cluster
from dyorc.planner.plan.show import summary_of
from dyorc.planner.planners import PLANNERS
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import example


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "3"),
        (range(128), "0 to 127, 128 ranks"),
        ([0, 2, 3, 4, 9], "0, 2 to 4, 9, 5 ranks"),
        (range(0, 20, 2), "0, 2, 4, 6, ..., 10 ranks"),
    ],
)
def test_ranks_are_named_by_their_runs(ranks: range | list[int], text: str) -> None:
    assert ranks_text(ranks) == text


def _rows(num_quick: int, num_slow: int) -> list[str]:
    program, cluster = example("net").program, uneven_cluster([2.0] * num_quick + [1.0] * num_slow, flops_per_s=1e9)
    plan = PLANNERS["dp_even"](program, cluster)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(rank_table(plan, simulate(plan, program, cluster)))
    return [line.strip() for line in captured.get().splitlines()[1:] if line.strip()]


def test_equal_ranks_are_one_row() -> None:
    rows = _rows(4, 8)
    assert any(row.startswith("0 to 3, 4 ranks") for row in rows), rows
    assert sum("ranks" in row for row in rows) < 12


def test_few_ranks_have_a_row_each() -> None:
    assert [row.split()[0] for row in _rows(2, 2)] == ["0", "1", "2", "3"]


def test_what_is_summed_once_is_what_each_rank_does() -> None:
    """Every rank of a plan that computes everything whole has the arithmetic of one device."""
    program = example("net").program
    alone = summary_of(PLANNERS["dp_even"](program, even_cluster(1))).ranks[0]
    ranks = summary_of(PLANNERS["dp_even"](program, even_cluster(4))).ranks
    assert [one.rank for one in ranks] == [0, 1, 2, 3]
    assert {one.num_operations for one in ranks} == {alone.num_operations}
    assert max(one.flops for one in ranks) < alone.flops
