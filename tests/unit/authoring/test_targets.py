"""Several targets, each with its own neighbours, whatever these are called."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.authoring import bundles
from dyorc.authoring.loading import name_in
from dyorc.authoring.targets import import_places
from dyorc.authoring.workflow import Workflow
from dyorc.deployment.initial_versions import load_initial_versions
from dyorc.deployment.state import DeploymentState
from dyorc.errors import ModuleImportError

_APP = """
import numpy as np
from jaxtyping import Float
import dyorc
import {imports}

@dyorc.program(name="{name}_scale")
def scale(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    import late
    return x * helper.SCALE + late.OFFSET

@dyorc.workflow(name="{name}")
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return scale(x)

@dyorc.workflow(name="{name}_twice")
async def twice(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return scale(scale(x))
"""


@pytest.fixture(autouse=True)
def _forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    finders, before = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        if name.startswith("_dyorc_version") or str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def _write(folder: Path, name: str, scale: int, offset: int, *, imports: str = "helper") -> str:
    folder.mkdir()
    (folder / "app.py").write_text(_APP.format(name=name, imports=imports))
    (folder / "helper.py").write_text(f"SCALE = {scale}\n")
    (folder / "late.py").write_text(f"OFFSET = {offset}\n")
    return f"{folder}/app.py"


def _answer(workflow: object) -> list[float]:
    assert isinstance(workflow, Workflow)
    return dyorc.run(workflow, np.ones(2, np.float32)).tolist()


def test_each_target_has_its_own_neighbours_also_those_that_it_imports_late(tmp_path: Path) -> None:
    first, second = _write(tmp_path / "a", "one", 2, 1), _write(tmp_path / "b", "two", 30, 5)
    imported = import_places([first, second])
    assert _answer(name_in(imported[first].module, first, "flow")) == [3, 3]
    assert _answer(name_in(imported[second].module, second, "flow")) == [35, 35]
    assert imported[second].bundle.modules["helper"].text == "SCALE = 30\n"
    assert imported[first].bundle.modules["late"].text == "OFFSET = 1\n"


def test_targets_of_one_folder_share_their_modules(tmp_path: Path) -> None:
    first, second = _write(tmp_path / "a", "one", 2, 1), _write(tmp_path / "b", "two", 30, 5)
    third = f"{tmp_path}/b/more.py"
    Path(third).write_text("from app import scale, twice\n")
    imported = import_places([first, second, third])
    assert imported[third].module.scale is imported[second].module.scale
    assert _answer(imported[third].module.twice) == [1055, 1055]


def test_modules_keep_their_names_where_no_neighbour_is_ambiguous(tmp_path: Path) -> None:
    first, second = _write(tmp_path / "a", "one", 2, 1), _write(tmp_path / "b", "two", 30, 5, imports="numpy as helper")
    (tmp_path / "b" / "app.py").write_text("from other import flow\n")
    (tmp_path / "b" / "other.py").write_text(
        _APP.format(name="two", imports="math as helper").replace("import late", "late = np")
    )
    imported = import_places([first, second])
    assert imported[first].importer is imported[second].importer is None
    assert imported[first].module.helper.__name__ == "helper"


def test_a_neighbour_that_is_found_by_text_is_refused_where_it_could_be_another_folders(tmp_path: Path) -> None:
    places = [_write(tmp_path / "a", "one", 2, 1), _write(tmp_path / "b", "two", 30, 5)]
    for folder, text in (
        ("a", "import importlib\nM = importlib.import_module('helper')\n"),
        ("b", "import pickle\nimport helper\n"),
    ):
        (tmp_path / folder / "app.py").write_text(text)
    with pytest.raises(
        ModuleImportError, match=r"'helper' could be .*a/helper\.py or .*b/helper\.py, of several targets; .* a separate package"
    ):
        import_places(places)
    (tmp_path / "a" / "app.py").write_text("import helper\nimport pickle\nM = pickle.loads(b'chelper\\nSCALE\\n.')\n")
    with pytest.raises(ModuleImportError, match="'helper' is imported by its text, as pickles do, and has another name here"):
        import_places(places)


@pytest.mark.parametrize("step", [1, -1], ids=["first", "last"])
def test_a_neighbour_that_is_called_like_a_library_stays_its_folders_own(tmp_path: Path, step: int) -> None:
    for folder, scale in (("lib", 30), ("g", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "thirdparty_x.py").write_text(f"SCALE = {scale}\n")
    (tmp_path / "h").mkdir()
    sys.path.insert(0, f"{tmp_path}/lib")
    places = [f"{tmp_path}/{folder}/app.py" for folder in ("g", "h")]
    for place in places:
        Path(place).write_text("from thirdparty_x import SCALE\n")
    imported = import_places(places[::step])
    assert [imported[place].module.SCALE for place in places] == [2, 30]
    assert imported[places[0]].bundle.modules["thirdparty_x"].text == "SCALE = 2\n"
    assert "thirdparty_x" not in imported[places[1]].bundle.modules


def test_a_module_and_a_file_have_their_own_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("pkg_m", "k"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "app.py").write_text("from helper_m import SCALE\n")
    (tmp_path / "helper_m.py").write_text("SCALE = 2\n")
    (tmp_path / "k" / "helper_m.py").write_text("SCALE = 30\n")
    places = ["pkg_m.app", f"{tmp_path}/k/app.py"]
    for order in (places, places[::-1]):
        imported = import_places(order)
        assert [imported[place].module.SCALE for place in places] == [2, 30]


def test_a_file_is_parsed_once_for_all_of_its_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = _write(tmp_path / "a", "one", 2, 1)
    text = Path(place).read_text()
    models = "".join(f'\n@dyorc.workflow(name="m{n}")\nasync def m{n}(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:\n'
                     f"    return scale(x)\n" for n in range(30))  # fmt: skip
    Path(place).write_text(text + models)
    parsed: list[str] = []

    def parse(text: str) -> ast.Module:
        parsed.append(text)
        return ast.parse(text)

    monkeypatch.setattr(bundles, "ast", type("Ast", (), {**vars(ast), "parse": staticmethod(parse)}))
    with load_initial_versions([f"{place}:m{n}" for n in range(30)], DeploymentState(), {}) as (versions, _):
        assert len(versions) == 30
    assert sum("m29" in text for text in parsed) == 1
