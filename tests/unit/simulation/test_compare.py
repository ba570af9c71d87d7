"""Tables and pictures, in Python and on the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dyorc.cli.simulate import app
from dyorc.simulation import simulate as compare_module
from dyorc.simulation.simulate import as_json, compare, simulate

REQUIRED = {
    "p50_ms",
    "p99_ms",
    "mean_batch_size",
    "device_time_per_request_ms",
    "wasted_ratio",
    "speculations",
    "commits",
    "squashes",
    "throughput_rps",
}


def test_rows_come_by_workload_load_and_policy() -> None:
    rows = list(compare(["guard", "coin"], ["timer", "greedy"], [0.2, 0.6], num_requests=100))

    assert [(row["workload"], row["load"], row["policy"]) for row in rows] == [
        (workload, load, policy) for workload in ("guard", "coin") for load in (0.2, 0.6) for policy in ("timer", "greedy")
    ]
    alone = simulate("coin", "greedy", load=0.6, num_requests=100)
    assert rows[-1] == alone.as_row() | {"p50_vs_oracle": None, "p99_vs_oracle": None}
    assert json.loads(as_json(rows)) == rows


def test_ratios_to_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_module, "ORACLE", "greedy")

    timer, greedy = compare(["guard"], ["timer", "greedy"], [0.5], num_requests=100)

    assert (greedy["p50_vs_oracle"], greedy["p99_vs_oracle"]) == (1, 1)
    assert timer["p50_vs_oracle"] == pytest.approx(timer["p50_ms"] / greedy["p50_ms"], abs=1e-4)


def test_the_number_of_processes_changes_nothing() -> None:
    options = {"workloads": ["guard"], "policies": ["timer", "greedy"], "loads": [0.5], "num_requests": 50}

    assert list(compare(**options, num_processes=2)) == list(compare(**options))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_one_run_is_printed_as_one_object() -> None:
    arguments = [
        "--workload",
        "guard",
        "--policy",
        "greedy",
        "--rate",
        "200",
        "--replicas",
        "2",
        "--requests",
        "200",
        "--seed",
        "3",
        "--json",
    ]
    output = run(*arguments)

    row = json.loads(output)
    assert row.keys() >= REQUIRED
    assert (row["rate_rps"], row["num_replicas"], row["num_requests"], row["seed"]) == (200, 4, 200, 3)
    assert output.count("\n") == 1
    assert run(*arguments) == output


def test_a_comparison_is_printed_as_a_table() -> None:
    rows = json.loads(
        run(
            *[
                "compare",
                "--json",
                "--workload",
                "guard",
                "--workload",
                "coin",
                "--policy",
                "greedy",
                "--load",
                "0.5",
                "--requests",
                "100",
            ]
        )
    )

    assert [row["workload"] for row in rows] == ["guard", "coin"]
    assert all(row.keys() >= REQUIRED | {"p50_vs_oracle", "p99_vs_oracle"} for row in rows)


def test_tables_are_aligned_for_people() -> None:
    assert "p99 ms" in run("--requests", "50")
    assert "timer" in run("compare", "--workload", "guard", "--load", "0.2", "--requests", "50")


@pytest.mark.parametrize("arrivals", ["gamma", "constant", "trace"])
def test_arrival_processes_by_name(arrivals: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("\n".join(str(at / 10) for at in range(60)))

    row = json.loads(run("--arrivals", arrivals, "--trace", str(trace), "--requests", "60", "--json"))

    assert row["p50_ms"] > 0


def test_a_trace_needs_a_file() -> None:
    assert CliRunner().invoke(app, ["--arrivals", "trace"]).exit_code == 2


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"

    run("compare", "--workload", "guard", "--requests", "50", "--picture", str(path))

    assert path.read_bytes().startswith(b"\x89PNG")
