"""The old name of `dyorc.planner`, until 0.2: importing it, or a module below it, gives the planner's own, with a warning.

What packages exported under other names is there under these, too.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

_OLD, _NEW = "dyorc.offline", "dyorc.planner"
_RENAMED = {
    "plan": {"narrowed": "narrow"},
    "program": {"Ref": "ValueRef", "layered": "number_layers", "repeated": "repeat_layers"},
    "reference": {"labelled": "label_results"},
    "runtime": {"Nursery": "RankForkServer", "Ran": "RunResult"},
    "verify": {"proved": "mark_proved"},
}
"""By package, what it exported under another name."""


class _Planner(MetaPathFinder, Loader):
    """Finds `dyorc.offline.X` as the module `dyorc.planner.X`, the same object, so that classes exist once."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname.startswith(f"{_OLD}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_NEW + spec.name.removeprefix(_OLD))
        # The import system writes the spec that it was given into the module, which keeps its own.
        self._own = module.__spec__, module.__loader__
        for old, new in _RENAMED.get(spec.name.removeprefix(f"{_OLD}."), {}).items():
            setattr(module, old, getattr(module, new))
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__, module.__loader__ = self._own


warnings.warn("dyorc.offline is now dyorc.planner; the old name goes with 0.2", DeprecationWarning, stacklevel=2)
sys.meta_path.insert(0, _Planner())
