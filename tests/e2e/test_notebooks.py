"""The notebooks run from their first cell to the last, and print what is stored in them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ipykernel", reason="needs the extra `dev`")
nbformat = pytest.importorskip("nbformat", reason="needs the extra `dev`")
nbclient = pytest.importorskip("nbclient", reason="needs the extra `dev`")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TIMEOUT_S = 250


@pytest.mark.filterwarnings("default")  # of the libraries that start a kernel
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored_in_it(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for variable, folder in (("JUPYTER_RUNTIME_DIR", "run"), ("IPYTHONDIR", "ipython"), ("MPLCONFIGDIR", "matplotlib")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    stored, notebook = nbformat.read(path, 4), nbformat.read(path, 4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = nbclient.NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises CellExecutionError if a cell does
    results = [
        (_printed(before), _printed(now)) for before, now in zip(stored.cells, notebook.cells, strict=True) if _is_result(before)
    ]
    assert len(results) >= 3
    for before, now in results:
        assert before
        assert NUMBER.sub("#", now) == NUMBER.sub("#", before)
        # Other versions of scikit-learn may train slightly other models.
        numbers, expected = (np.array([float(each) for each in NUMBER.findall(text)]) for text in (now, before))
        np.testing.assert_allclose(numbers, expected, rtol=0.02, atol=3)


def test_there_are_two_notebooks_with_pictures() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["cascade", "guessing"]
    for path in NOTEBOOKS:
        outputs = [output for cell in nbformat.read(path, 4).cells for output in cell.get("outputs", [])]
        assert any("image/png" in output.get("data", {}) for output in outputs)
        assert not any(output.output_type == "error" for output in outputs)


def test_the_cascade_is_that_of_the_tutorial() -> None:
    page = ROOT / "docs" / "tutorial" / "1-cascade.md"
    blocks = re.findall(r'```python title="app.py"\n(.*?)```', page.read_text(), re.DOTALL)
    code = "".join(blocks).partition("FOLDER = Path(__file__).parent\n")[2].strip()
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS[0], 4).cells if cell.cell_type == "code"]
    assert code
    assert any(cell.endswith(code) for cell in cells)


def _is_result(cell: Any) -> bool:
    return "result" in cell.metadata.get("tags", [])


def _printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
