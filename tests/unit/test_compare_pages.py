"""The pages of docs/compare: our code answers as plain NumPy does, and rates are those of the stored table. The code of the other
servers is run by `make test-moving`."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dyorc
from benchmarks.table.records import read_table
from tests.moving.pages import COMPARE, files_of, write_pipeline
from tests.moving.servers import SERVERS

PEERS = {"Ray Serve": "ray_throughput", "Triton": "triton", "BentoML": "bentoml", "LitServe": "litserve", "Mosec": "mosec"}
OURS = ("dyorc", "dyorc_cell")
TABLE = Path(__file__).parents[2] / "benchmarks" / "results" / "full" / "table.json"


def test_every_page_has_a_server_that_is_run_and_code_that_parses() -> None:
    assert {page.stem for page in COMPARE.glob("*.md")} == set(SERVERS)
    for page in SERVERS:
        for path, text in files_of(page).items():
            if path.endswith(".py"):
                compile(text, path, "exec")


def test_our_pipeline_answers_as_numpy_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pipeline("index", tmp_path)
    models = _module(tmp_path / "models.py")
    monkeypatch.setitem(sys.modules, "models", models)
    app = _module(tmp_path / "app.py")
    images = np.random.default_rng(1).standard_normal((20, 64), dtype=np.float32)
    is_sure = models.small(images).max(1) > 0.9
    assert is_sure.any()
    assert not is_sure.all()

    for image, sure in zip(images, is_sure, strict=True):
        expected = (models.small if sure else models.large)(image[None])[0]
        np.testing.assert_allclose(dyorc.run(app.classify, image), expected, atol=1e-5)


@pytest.mark.parametrize("page", sorted(set(SERVERS) - {"index", "kserve"}))
def test_rates_are_those_of_the_benchmark(page: str) -> None:
    text = (COMPARE / f"{page}.md").read_text(encoding="utf-8")
    rates = {(entry.workload, entry.system): entry.rps for entry in read_table(TABLE).highest}
    table = re.search(
        r"^\| \| (?P<head>cascade .*)\|\n\|.*\n\| DyOrc \|(?P<ours>.*)\|\n\| (?P<peer>[\w ]+) \|(?P<theirs>.*)\|$",
        text,
        re.MULTILINE,
    )
    assert table is not None
    workloads = _cells(table["head"])
    assert _numbers(table["ours"]) == pytest.approx([max(rates[load, mode] for mode in OURS) for load in workloads], rel=0.005)
    assert _numbers(table["theirs"]) == pytest.approx([rates[load, PEERS[table["peer"]]] for load in workloads], rel=0.005)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|") if cell.strip()]


def _numbers(row: str) -> list[float]:
    return [float(cell.replace(",", "")) for cell in _cells(row)]
