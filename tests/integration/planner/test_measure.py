"""Measures a small cluster of real ranks, by its function and by its command."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyorc.cli.main import _app as app  # pyright: ignore[reportPrivateUsage]
from dyorc.errors import PlanError
from dyorc.planner.cluster import load_cluster, write_cluster
from dyorc.planner.measure import Effort, measure_cluster
from dyorc.planner.plan import Algorithm, CollectiveKind
from dyorc.planner.program.costs import NodeCost
from dyorc.planner.runtime import LinkShape, RankOptions

_QUICK = Effort(num_repeats=1, chain=2, matrices=(16, 128), vectors=(1 << 12, 1 << 18), messages=(1 << 12, 1 << 16))


def test_ranks_and_their_links_are_measured_and_kept_in_a_file(tmp_path: Path) -> None:
    """Which figures come out of which times, unit tests say: what is measured here depends on all else that runs."""
    link = LinkShape(bytes_per_s=1e7, latency_s=0.02)
    told: list[tuple[str, int, int]] = []
    options = RankOptions(num_ranks=2, slowness=(1.0, 4.0), links={(0, 1): link, (1, 0): link})
    cluster = measure_cluster(options, effort=_QUICK, progress=lambda *what: told.append(what))
    assert [done for _, done, _ in told] == list(range(told[0][2]))
    assert told[0][0] == "aten.mm.default"
    product = NodeCost(flops=1e9, read_bytes=0, written_bytes=0)
    assert min(cluster.compute_s(product, rank) for rank in (0, 1)) > 0
    assert [(one.source, one.target) for one in cluster.links] == [("rank-0", "rank-1")]
    assert cluster.transfer_s(0, 1, 1 << 18) > 0
    assert cluster.collective_s(CollectiveKind.ALL_REDUCE, Algorithm.RING, [0, 1], [1 << 18] * 2) > 0
    assert {cost.kind for cost in cluster.collectives} == {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
    }
    write_cluster(cluster, tmp_path / "measured.toml")
    assert load_cluster(tmp_path / "measured.toml").digest == cluster.digest


def test_the_command_writes_a_file_that_its_check_accepts(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    measured = CliRunner().invoke(
        app, ["cluster", "measure", "--quick", "--ranks", "2", "--output", str(path)], catch_exceptions=False
    )
    assert measured.exit_code == 0
    told = [line.partition(" ")[0] for line in measured.stderr.splitlines()]
    assert told == [f"{number}/{len(told)}" for number in range(1, len(told) + 1)]
    assert measured.stdout == f"{path}: measured with 2 ranks\n"
    checked = CliRunner().invoke(app, ["cluster", "check", str(path)], catch_exceptions=False)
    assert checked.exit_code == 0
    assert "measured: 2 ranks" in checked.stdout
    assert checked.stdout.count("\nmeasured: ") == len(load_cluster(path).collectives) == 10
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.toml"]


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be written"):
        CliRunner().invoke(app, ["cluster", "measure", "-o", str(tmp_path / "no" / "cluster.toml")], catch_exceptions=False)
