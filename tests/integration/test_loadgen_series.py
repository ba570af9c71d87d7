"""`python -m loadgen sweep`, `compare` and `report`, with a server that answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from loadgen.cli import app
from loadgen.compare import Comparison
from loadgen.limit import run_echo_server
from loadgen.sweep import SweepResult

_SHORT = ("--duration", "1", "--warm-up", "0.2", "--drain", "1")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_echo_server("http") as address:
        yield address


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.npz"
    np.savez(path, x=np.zeros(4, np.float32))
    return path


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    return done.exit_code, done.output


def test_a_sweep_up_to_a_rate_is_reported(url: str, pool: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "sweep.json", tmp_path / "page.html"

    limits = ("--slo-ms", "500", "--min-goodput", "0.9", "--start", "50", "--max-rate", "150")
    code, said = invoke("sweep", url, "echo", "--pool", pool, *limits, *_SHORT, "--out", out)

    assert code == 0, said
    found = msgspec.json.decode(out.read_bytes(), type=SweepResult)
    assert next(probe.rate_rps for probe in found.probes if not probe.is_repeated) == 50
    assert 50 <= found.highest_rps <= 150
    assert found.highest_rps == 150 or found.limited_by_client
    assert f"{found.highest_rps:,.1f} requests/s within 500 ms" in said.splitlines()[-1]
    assert len(said.splitlines()) == 1 + len(found.probes)
    code, said = invoke("report", out, "-o", page)
    assert code == 0, said
    assert "<svg" in page.read_text(encoding="utf-8")


def test_targets_are_compared_in_turns(url: str, pool: Path, tmp_path: Path) -> None:
    out = tmp_path / "compare.json"

    targets = ("--target", f"one={url}#echo", "--target", f"other={url}#echo", "--rounds", "2")
    code, said = invoke("compare", *targets, "--pool", pool, "--rate", "100", *_SHORT, "--out", out)

    assert code == 0, said
    found = msgspec.json.decode(out.read_bytes(), type=Comparison)
    assert [run.label for run in found.runs] == ["one", "other", "one", "other"]
    assert len({run.counts.planned for run in found.runs}) == 1  # the same seed
    assert all(run.counts.correct == run.counts.planned for run in found.runs)
    assert set(found.figures) == {"one", "other"}
    assert "other" in said


def test_errors_that_users_can_correct_are_plain(url: str, pool: Path) -> None:
    code, said = invoke("compare", "--target", f"one={url}#echo", "--pool", pool, "--rate", "9")
    assert (code, "at least two" in said, "Traceback" in said) == (2, True, False)

    code, said = invoke("sweep", url, "echo", "--pool", pool, "--slo-ms", "5", "--start", "9", "--max-rate", "3")
    assert (code, "start <= max" in said, "Traceback" in said) == (2, True, False)
