"""A target's code as it was at one time, imported beside other versions of it, and compared with them."""

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.authoring import fingerprints
from dyorc.authoring.bundle_imports import BundleImporter
from dyorc.authoring.bundles import Bundle
from dyorc.authoring.fingerprints import Fingerprints
from dyorc.authoring.loading import import_place, programs_of
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import DefinitionError, ModuleImportError

_APP = """
import numpy as np
from jaxtyping import Float
import dyorc
from parts.nets import small, Large
from parts import other
import settings

large = Large("weights.bin", factor=3)
FACTOR = settings.FACTOR

@dyorc.workflow
async def classify(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    import late
    return large(small(x))

@dyorc.program
def plain(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x * FACTOR
"""
_NETS = """
import numpy as np
from jaxtyping import Float
import dyorc
from . import scale

Vectors = Float[np.ndarray, "batch n"]

@dyorc.program
def small(x: Vectors) -> Vectors:
    return x + scale.ONE

@dyorc.program(max_batch_size=8)
class Large:
    def __init__(self, weights: str, factor: int) -> None:
        self.factor = factor
    def __call__(self, x: Vectors) -> Vectors:
        return x * self.factor
"""


def _with_cost(text: str) -> str:
    """Returns the code of the app if it declares what a call of `large` costs."""
    made = 'Large("weights.bin", factor=3)'
    return _APP.replace(made, f"{made}.with_options(max_batch_cost=9, cost=lambda x: {text})")


_FILES = {
    "app.py": _APP, "parts/nets.py": _NETS, "parts/scale.py": "ONE = 1\n", "parts/other.py": "", "settings.py": "FACTOR = 2\n",
    "late.py": "VALUE = 1\n", "unused.py": "", "weights.bin": "12",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields a folder with a workflow; forgets afterwards what was imported there."""
    _write(tmp_path, _FILES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)) or name == "parts":
            del sys.modules[name]


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    linecache.clearcache()


def _forget(folder: Path) -> None:
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)) or name == "parts":
            del sys.modules[name]


def _bundle(folder: Path, name: str = "classify") -> Bundle:
    """Imports the target from the disk, and returns its code."""
    place = f"{folder}/app.py"
    found = Bundle.of(f"{place}:{name}", import_place(place).__name__)
    _forget(folder)
    return found


_numbers = iter(range(1000))


class Version:
    """A bundle that was imported below a package of its own."""

    def __init__(self, bundle: Bundle) -> None:
        package = f"_version{next(_numbers)}"
        self.importer = BundleImporter(bundle, package)
        self.workflow = self.importer.load()
        fingerprints = Fingerprints(bundle, lambda name: sys.modules.get(f"{package}.{name}"), self.importer.own_name)
        self.prints = {one.name: fingerprints.of(one, one.name) for one in programs_of(self.workflow)}

    def run(self, x: list[float]) -> list[float]:
        found = self.workflow
        assert isinstance(found, Workflow | Program)
        return dyorc.run(found, np.array(x, np.float32)).tolist()


def test_a_bundle_has_the_files_that_the_target_may_import(folder: Path) -> None:
    bundle = _bundle(folder)
    assert sorted(bundle.modules) == ["app", "late", "parts.nets", "parts.other", "parts.scale", "settings"]
    assert bundle.modules["late"].text == "VALUE = 1\n"


def test_versions_live_side_by_side_and_their_neighbours_too(folder: Path) -> None:
    first = Version(_bundle(folder))
    _write(folder, {"parts/scale.py": "ONE = 10\n", "app.py": _APP.replace("factor=3", "factor=5")})
    second = Version(_bundle(folder))
    _write(folder, {"parts/scale.py": "this is no Python", "app.py": "nor is this"})
    third = Version(_bundle_of(second))
    assert first.run([1.0]) == [6.0]
    assert second.run([1.0]) == [55.0]
    assert third.run([1.0]) == [55.0]
    assert "app" not in sys.modules
    package = first.workflow.function.__module__ if isinstance(first.workflow, Workflow) else ""
    assert package.endswith(".app")
    for one in (first, second, third):
        one.importer.unload()
    assert not [name for name in sys.modules if name.startswith("_version")]


def _bundle_of(version: Version) -> Bundle:
    return version.importer._bundle  # pyright: ignore[reportPrivateUsage]


def test_code_that_is_imported_late_is_the_versions_own(folder: Path) -> None:
    code = (
        "import dyorc\n" + _APP.replace("    return large", "    FOUND.append(late.VALUE)\n    return large") + "\nFOUND = []\n"
    )
    _write(folder, {"app.py": code})
    bundle = _bundle(folder)
    _write(folder, {"late.py": "VALUE = 2\n"})
    version = Version(bundle)
    version.run([1.0])
    assert isinstance(version.workflow, Workflow)
    assert set(version.workflow.function.__globals__["FOUND"]) == {1}


def test_a_replica_imports_the_bundle_by_its_own_names_and_needs_no_file(folder: Path) -> None:
    bundle = _bundle(folder)
    for name in _FILES:
        (folder / name).unlink()
    importer = BundleImporter(bundle)
    try:
        found = importer.load()
        assert isinstance(found, Workflow)
        assert found.function.__module__ == "app"
        assert [one.name for one in found.programs] == ["large", "small"]
        assert sys.modules["settings"].__file__ == str(folder / "settings.py"), "data beside the code is found where it was"
    finally:
        sys.meta_path.remove(importer)
        _forget(folder)


def test_errors_show_the_users_lines_and_leave_nothing_behind(folder: Path) -> None:
    bundle = _bundle(folder)
    texts = {"parts.scale": "ONE = 1 / 0\n", "settings": "FACTOR ="}
    for name, text in texts.items():
        modules = {**bundle.modules, name: type(bundle.modules[name])(bundle.modules[name].path, text)}
        with pytest.raises(ModuleImportError, match=r"app\.py cannot be imported") as caught:
            BundleImporter(Bundle(bundle.target, bundle.main, modules), "_broken").load()
        assert name.rpartition(".")[2] + ".py" in str(caught.value)
        assert "bundle_imports" not in caught.value.user_traceback
    with pytest.raises(
        DefinitionError, match=r"no workflow or program 'clasify'; it has \['classify', 'large', 'plain', 'small'\]"
    ):
        BundleImporter(Bundle(bundle.target[:-8] + "clasify", bundle.main, bundle.modules), "_broken").load()
    assert not [name for name in sys.modules if name.startswith("_broken")]


def test_equal_programs_have_equal_fingerprints(folder: Path) -> None:
    first, again = Version(_bundle(folder)), Version(_bundle(folder))
    assert first.prints == again.prints
    assert all(first.prints.values())


@pytest.mark.parametrize(
    ("change", "differ"),
    [
        ({"app.py": _APP + "\n# a comment\n"}, set[str]()),
        ({"app.py": _APP.replace("factor=3", "factor=4")}, {"large"}),
        ({"parts/nets.py": _NETS.replace("max_batch_size=8", "max_batch_size=4")}, {"large", "small"}),
        ({"app.py": _with_cost("x.shape[0]")}, {"large"}),
        ({"parts/scale.py": "ONE = 2\n"}, {"large", "small"}),
        ({"settings.py": "FACTOR = 9\n"}, set[str]()),
        ({"weights.bin": "other weights"}, {"large"}),
        ({"app.py": _APP.replace("FACTOR =", "import parts.scale\nparts.scale.ONE = 7\nFACTOR =")}, {"large", "small"}),
        ({"app.py": _APP.replace("FACTOR =", "Large.__wrapped__.size = 7\nFACTOR =")}, {"large"}),
    ],
    ids=["comment", "argument", "option", "cost", "import", "elsewhere", "weights", "value outside", "attribute outside"],
)
def test_what_makes_programs_different(folder: Path, change: dict[str, str], differ: set[str]) -> None:
    first = Version(_bundle(folder)).prints
    _write(folder, change)
    second = Version(_bundle(folder)).prints
    assert {name for name in first if first[name] != second[name]} == differ


def test_programs_with_a_cost_are_compared_by_its_code(folder: Path) -> None:
    prints: list[str | None] = []
    for text in ("x.shape[0]", "x.shape[0]", "x.shape[0] + 1", "x.shape[0] * settings.FACTOR"):
        _write(folder, {"app.py": _with_cost(text)})
        prints.append(Version(_bundle(folder)).prints["large"])
    assert prints[0] is not None
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_what_cannot_be_told_is_different(folder: Path) -> None:
    nets = (
        _NETS
        + """
def make(n):
    @dyorc.program(name=f"times")
    def times(x: Vectors) -> Vectors:
        return x * n
    return times

opaque = Large(object(), factor=1)
"""
    )
    app = _APP.replace("import small, Large", "import small, Large, make, opaque").replace(
        "FACTOR =", "times = make(2)\nFACTOR ="
    )
    app = app.replace("large(small(x))", "times(opaque(small(x)))")
    _write(folder, {"parts/nets.py": nets, "app.py": app})
    prints = Version(_bundle(folder)).prints
    assert prints["times"] is None
    assert prints["large"] is None
    assert prints["small"] is not None


@pytest.mark.real  # reads all modules that are imported
def test_dynamic_imports_make_a_program_depend_on_everything(folder: Path) -> None:
    nets = _NETS.replace("import dyorc\n", "import dyorc, importlib\nimportlib.import_module('settings')\n")
    _write(folder, {"parts/nets.py": nets})
    first = Version(_bundle(folder)).prints
    _write(folder, {"app.py": _APP + "\n# a comment\n"})
    second = Version(_bundle(folder)).prints
    assert all(first[name] != second[name] for name in first)


def test_a_folder_that_code_names_is_looked_through_once(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path_factory.mktemp("named")
    parts = {f"parts/deep{number}/inner.py": "VALUE = 1\n" for number in range(5)}
    imports = "".join(f"import parts.deep{number}.inner\n" for number in range(5))
    _write(folder, parts | {"parts/nets.py": f"{_NETS}\n{imports}\nNAMED = {str(named)!r}\n"})
    looked: list[Path] = []
    monkeypatch.setattr(fingerprints, "_stamps_in", lambda path: looked.append(path) or ())
    prints = Version(_bundle(folder)).prints
    assert len(prints) == 2
    assert looked == [named], "once for both programs, which are in one module"


def test_a_link_to_itself_that_code_names_is_nothing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    loop = tmp_path_factory.mktemp("linked") / "itself"
    loop.symlink_to(loop)
    _write(folder, {"parts/nets.py": f"{_NETS}\nNAMED = {str(loop)!r}\n"})
    prints = Version(_bundle(folder)).prints
    assert prints == Version(_bundle(folder)).prints
    assert None not in prints.values()
