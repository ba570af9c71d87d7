"""Which programs a workflow may call, found by reading its code."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.bundles import Bundle, ModuleSource
from dyorc.authoring.fingerprints import Fingerprints
from dyorc.authoring.workflow import Workflow, of_program
from dyorc.errors import DefinitionError

Vector = Float[np.ndarray, "2"]
Vectors = Float[np.ndarray, "batch 2"]


def make(name: str, **options: object) -> dyorc.Program:
    @dyorc.program(name=name, **options)
    def program(x: Vectors) -> Vectors:
        return x

    return program


plain, listed, in_dict, deep, other = (make(name) for name in ("plain", "listed", "in_dict", "deep", "other"))
by_name = {"first": in_dict, "more": [listed, {"again": deep}]}
models = ModuleType("models")
models.attribute = make("attribute")
models.unused = make("unused")


def names(workflow: Workflow) -> set[str]:
    return {program.name for program in workflow.programs}


@dyorc.workflow
async def uses_global(x: Vector) -> Vector:
    return plain(x)


@dyorc.workflow
async def uses_dict(x: Vector) -> Vector:
    return by_name[await dyorc.choose(x, lambda value: "first")](x)


@dyorc.workflow
async def uses_module(x: Vector) -> Vector:
    return models.attribute(x)


def ordinary(x: dyorc.Ref) -> dyorc.Ref:
    def nested(y: dyorc.Ref) -> dyorc.Ref:
        return deep(y)

    return nested(x)


@dyorc.workflow
async def uses_functions(x: Vector) -> Vector:
    return ordinary(x)


@dyorc.workflow
async def uses_comprehension(x: Vector) -> Vector:
    (y,) = [listed(y) for y in (x,)]
    return y


@dyorc.workflow
async def uses_workflow(x: Vector) -> Vector:
    return uses_functions(uses_global(x))


@dyorc.workflow
async def calls_itself(x: Vector) -> Vector:
    return calls_itself(x) if await dyorc.when(x, lambda value: False) else mutual(x)


@dyorc.workflow
async def mutual(x: Vector) -> Vector:
    return calls_itself(plain(x))


@dyorc.workflow(programs=[other])
async def declares(x: Vector) -> Vector:
    return vars(sys.modules[__name__])["oth" + "er"](x)


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [
        (uses_global, {"plain"}),
        (uses_dict, {"in_dict", "listed", "deep"}),
        (uses_module, {"attribute"}),
        (uses_functions, {"deep"}),
        (uses_comprehension, {"listed"}),
        (uses_workflow, {"plain", "deep"}),
        (calls_itself, {"plain"}),
        (mutual, {"plain"}),
        (declares, {"other"}),
        (of_program(plain), {"plain"}),
    ],
    ids=lambda value: value.name if isinstance(value, Workflow) else "",
)
def test_programs_are_found(workflow: Workflow, expected: set[str]) -> None:
    assert names(workflow) == expected


def test_programs_in_closures_are_found() -> None:
    local = make("local")
    table = {"a": make("in_table")}

    def helper(x: dyorc.Ref) -> dyorc.Ref:
        return table["a"](x)

    @dyorc.workflow
    async def uses_closure(x: Vector) -> Vector:
        return local(helper(x))

    assert names(uses_closure) == {"local", "in_table"}


def test_two_programs_of_one_name_are_refused() -> None:
    first, second = make("same"), make("same")

    @dyorc.workflow
    async def uses_both(x: Vector) -> Vector:
        return first(second(x))

    with pytest.raises(DefinitionError, match=r"calls two programs named 'same'; rename one with \.with_options"):
        _ = uses_both.programs


def test_a_workflow_is_pure_if_all_its_programs_are() -> None:
    effect = make("effect", pure=False)

    @dyorc.workflow
    async def sends(x: Vector) -> Vector:
        return effect(x)

    @dyorc.workflow
    async def outer(x: Vector) -> Vector:
        return sends(x)

    assert uses_global.is_pure
    assert not outer.is_pure


def test_a_workflow_is_an_async_def() -> None:
    with pytest.raises(DefinitionError, match="decorates an `async def`"):

        @dyorc.workflow
        def not_async(x: Vector) -> Vector:
            return x


def test_calling_a_workflow_outside_of_one_says_how_to_run_it() -> None:
    with pytest.raises(RuntimeError, match=r"outside a workflow; run it with dyorc\.run\(uses_global"):
        uses_global(np.zeros(2))


def test_making_a_program_inside_a_workflow_is_an_error() -> None:
    @dyorc.program
    class Late:
        def __call__(self, x: Vectors) -> Vectors:
            return x

    @dyorc.workflow
    async def makes_program(x: Vector) -> Vector:
        return Late()(x)

    with pytest.raises(DefinitionError, match=r"make the program once, outside the workflow: late = Late\(\)"):
        dyorc.run(makes_program, [0, 0])


class Models:
    shared = make("shared")

    def __init__(self) -> None:
        self.own = make("own")
        self.unread = make("unread")


held = Models()


def test_attributes_of_objects_and_classes_are_found() -> None:
    @dyorc.workflow
    async def flow(x: Vector) -> Vector:
        return held.own(Models.shared(x))

    assert names(flow) == {"own", "shared"}
    assert dyorc.run(flow, np.ones(2, np.float32)).tolist() == [1, 1]


EXECUTED = """
@dyorc.program
def twice(x: Vectors) -> Vectors:
    return x * 2

@dyorc.program
class Thrice:
    def __call__(self, x: Vectors) -> Vectors:
        return x * 3

thrice = Thrice()

def rows(x):
    return x.shape[0]

def both(x):
    return thrice(twice(x))

@dyorc.workflow
async def flow(x: Vector) -> Vector:
    return both(x)
"""


def executed(**names: object) -> dict[str, Any]:
    namespace: dict[str, Any] = {"dyorc": dyorc, "Vector": Vector, "Vectors": Vectors, **names}
    exec(EXECUTED, namespace)
    return namespace


def test_code_that_exec_made_without_a_module_is_read() -> None:
    flow = executed()["flow"]

    assert flow.function.__module__ is None
    assert names(flow) == {"twice", "thrice"}
    assert dyorc.run(flow, np.ones(2, np.float32)).tolist() == [6, 6]


def test_a_workflow_calls_a_function_that_exec_made() -> None:
    both = executed()["both"]

    @dyorc.workflow
    async def flow(x: Vector) -> Vector:
        return both(x)

    assert names(flow) == {"twice", "thrice"}
    assert dyorc.run(flow, np.ones(2, np.float32)).tolist() == [6, 6]


def test_a_program_without_a_module_has_no_fingerprint() -> None:
    bundle = Bundle("app:twice", "app", {"app": ModuleSource("app.py", "")})
    fingerprints = Fingerprints(bundle, lambda name: None, lambda name: name.removeprefix("version."))
    program = executed()["twice"]
    options = {"cost": executed()["rows"], "max_batch_cost": 8}
    costly = executed(__name__="version.app")["twice"].with_options(**options)

    assert fingerprints.of(executed(__name__="version.app")["twice"], "twice") is not None
    assert fingerprints.of(program, "twice") is None
    assert fingerprints.of(costly, "twice") is None
