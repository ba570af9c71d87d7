"""What cannot work is refused where it is declared; what Python's classes can do, program classes can, too."""

import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import dyorc
from dyorc.authoring.bundles import Bundle
from dyorc.authoring.loading import load
from dyorc.authoring.workflow import of_program
from dyorc.deployment.loading_versions import load_bundle
from dyorc.errors import DefinitionError, ModuleImportError
from dyorc.models.registry import ModelRegistry

B = Float[np.ndarray, "batch n"]
V = Float[np.ndarray, " n"]
X = np.array([1, 2, 3], np.float32)


def plain(x: B) -> B:
    return x


async def coroutine(x: B) -> B:
    return x


def generator(x: B) -> Iterator[B]:
    yield x


async def async_generator(x: B) -> AsyncIterator[B]:
    yield x


@pytest.mark.parametrize(
    ("function", "kind"), [(coroutine, "an `async def`"), (generator, "a generator"), (async_generator, "an async generator")]
)
def test_a_program_that_waits_or_yields_takes_one_call_at_a_time(function: Any, kind: str) -> None:
    with pytest.raises(DefinitionError, match=rf"it is {kind}, which takes one call at a time; declare batched=False"):
        dyorc.program(function)
    with pytest.raises(DefinitionError, match=rf"it is {kind}, which takes one call at a time; declare batched=False"):
        dyorc.program(type("Late", (), {"__call__": function}))()


def test_a_plain_function_neither_runs_several_batches_at_once_nor_reads_streams() -> None:
    with pytest.raises(DefinitionError, match="max_ongoing is 4, but it is a plain function, which runs one batch at a time"):
        dyorc.program(max_ongoing=4)(plain)

    def joins(words: AsyncIterator[V]) -> V:
        return np.zeros(1, np.float32)

    with pytest.raises(DefinitionError, match="takes the stream 'words', and is a plain function; only an `async def`"):
        dyorc.program(batched=False)(joins)


def test_residents_are_declared_by_programs_and_refused_in_workflows() -> None:
    @dyorc.program(group="lm")
    def step(x: B, state: dyorc.Resident[dict, dyorc.Consumed]) -> tuple[B, dyorc.Resident[dict]]:
        return x, state

    state, new = step.signature.residents
    assert (state.is_consumed, new.is_consumed, step.group) == (True, False, "lm")
    with pytest.raises(DefinitionError, match="'state' is a resident, which stays in the process of a program"):

        @dyorc.workflow
        async def flow(state: dyorc.Resident[dict]) -> V:
            return state

    with pytest.raises(DefinitionError, match="cannot be a model by itself: it has the resident 'state'"):
        of_program(step)


def test_the_cost_of_a_call_and_its_limit_belong_together() -> None:
    with pytest.raises(DefinitionError, match="belong together; cost is missing"):
        dyorc.program(max_batch_cost=4)(plain)
    with pytest.raises(DefinitionError, match="cost is 3, expected a function"):
        dyorc.program(max_batch_cost=4, cost=3)(plain)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("execution_timeout_s", "5", "more than 0 seconds"), ("execution_timeout_s", True, "more than 0 seconds"),
        ("execution_timeout_s", float("inf"), "more than 0 seconds"), ("pad", {"n": (4,)}, r"dyorc\.pad\(\.\.\.\), or None"),
        ("max_batch_size", True, "a whole number of at least 1"), ("max_batch_size", 8.0, "a whole number of at least 1"),
        ("max_queued_calls", "9", "a whole number"), ("batched", 1, "True or False"), ("pure", "no", "True or False"),
        ("in_process", None, "True or False"), ("idempotent", 0, "True or False"), ("warmup", np.bool_(True), "True or False"),
        ("batch_invariant", 1, "True or False"), ("thread", "loop", "one of 'auto', 'own'"), ("thread", None, "one of"),
        ("ray_actor_options", [], "a dict of Ray's options"), ("plan", 3, "the name of a file"),
        ("num_replicas", "2", "at least 1"), ("ray_actor_options", {"num_gpus": "1"}, "num_gpus of ray_actor_options is '1'"),
        ("ray_actor_options", {"num_cpus": -1}, "expected a number of at least 0"),
        ("num_replicas", True, "at least 1"), ("autoscaling_config", 3, "a mapping of options"), ("name", 3, "expected a text"),
    ],
)  # fmt: skip
def test_options_of_other_types_are_refused(option: str, value: object, expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected):
        dyorc.program(**{option: value})(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"name": "größe"}, "'ö' is none of these"), ({"name": ""}, "expected a text"), ({"colour": 1}, r"no option \['colour'\]")],
)
def test_changed_options_are_checked_like_declared_ones(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        dyorc.program(plain).with_options(**changes)


@pytest.mark.parametrize("buckets", [(4.5,), (True,), "ab", 4, {4, 8}])
def test_buckets_are_whole_numbers(buckets: Any) -> None:
    with pytest.raises(DefinitionError, match=r"dyorc\.pad: n has buckets"):
        dyorc.pad(n=buckets)
    with pytest.raises(DefinitionError, match=r"dyorc\.pad: value is 'x', expected a number"):
        dyorc.pad("x", n=(4,))  # pyright: ignore[reportArgumentType]


def test_defaults_have_the_type_of_their_parameter() -> None:
    def half(x: B, by: float = None) -> B: ...  # noqa: RUF013
    def text(x: B, by: str = 3) -> B: ...
    def whole(x: B, by: float = 2) -> B: ...
    def given(x: B = X) -> B: ...

    for function, message in (
        (half, "the default of 'by' is None, expected float"),
        (text, "the default of 'by' is 3, expected str"),
        (given, "'x' is a tensor and has a default"),
    ):
        with pytest.raises(DefinitionError, match=message):
            dyorc.program(function)
    (spec,) = dyorc.program(whole).signature.statics
    assert type(spec.default) is float


def test_a_program_class_is_found_by_its_name_inside_of_it_and_can_be_derived_from() -> None:
    @dyorc.program
    class Base:
        STEP = 2
        _SIGN = 1

        def __init__(self, start: float = 1.0) -> None:
            assert isinstance(self, Base)
            self.offset = start * Base.STEP * Base._SIGN

        def __call__(self, x: B) -> B:
            return x + np.float32(self.offset)

    @dyorc.program
    class Derived(Base):
        def __init__(self) -> None:
            super().__init__(start=10.0)

    base, derived = Base(), Derived()

    @dyorc.workflow
    async def flow(x: V) -> V:
        return derived(base(x))

    assert dyorc.run(flow, X).tolist() == (X + 22).tolist()
    assert derived.name == "derived"
    with pytest.raises(AttributeError, match="nothing"):
        _ = Base.nothing


def test_super_with_the_class_is_refused_with_its_line() -> None:
    class Parent:
        def __init__(self) -> None:
            pass

    with pytest.raises(DefinitionError, match=r"write super\(\) without arguments \(.*test_declarations\.py, line \d+\)"):

        @dyorc.program
        class Child(Parent):  # pyright: ignore[reportUnusedClass]
            def __init__(self) -> None:
                super(Child, self).__init__()  # noqa: UP008

            def __call__(self, x: B) -> B:
                return x


def test_a_module_of_torch_says_that_its_call_is_meant() -> None:
    with pytest.raises(DefinitionError, match="a program is called by __call__; annotate that"):

        @dyorc.program
        class Net(torch.nn.Module):  # pyright: ignore[reportUnusedClass]
            def forward(self, x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
                return x

    @dyorc.program
    class Called(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

        def __call__(self, x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
            return super().__call__(x)

    assert dyorc.run(Called(), X).tolist() == (2 * X).tolist()


@pytest.mark.parametrize(("name", "wrong"), [("größe", "ö"), ("a b", " "), ("a/b", "/")])
def test_a_name_that_cannot_be_one_says_which_letter_does_not_fit(name: str, wrong: str) -> None:
    with pytest.raises(DefinitionError, match=f"{wrong!r} is none of these"):
        dyorc.program(name=name)(plain)


def test_workflows_are_checked_where_they_are_declared() -> None:
    async def flow(x: V) -> V:
        return x

    for options, message in (
        ({"name": "größe"}, "'ö' is none of these"),
        ({"programs": [plain]}, "programs has <function plain"),
        ({"programs": dyorc.program(plain)}, r"programs is Program\('plain'\), expected a list"),
        ({"wait_for_effects": 1}, "expected True or False"),
    ):
        with pytest.raises(DefinitionError, match=message):
            dyorc.workflow(**options)(flow)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_target_that_is_no_file_and_no_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"'\./pkg' is neither a file, which ends in \.py, nor the name of a module"):
        load("./pkg:flow")
    (tmp_path / "relative_app.py").write_text("from .nets import x\n")
    with pytest.raises(ModuleImportError, match=r"name its module, like pkg\.relative_app:flow"):
        load(f"{tmp_path}/relative_app.py:flow")


def test_streams_are_declared_as_they_are_read() -> None:
    with pytest.raises(DefinitionError, match=r"its stream 'words' has to be an Iterator"):

        @dyorc.program(batched=False)
        def plain(words: AsyncIterator[V]) -> Iterator[V]:
            yield from ()

    with pytest.raises(DefinitionError, match=r"its stream 'words' has to be an AsyncIterator"):

        @dyorc.program(batched=False)
        async def waits(words: Iterator[V]) -> V: ...


def test_a_program_that_yields_residents_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'output' is a resident, and it is a generator; only a plain function"):

        @dyorc.program(batched=False)
        def states(x: V) -> Iterator[dyorc.Resident[list[int]]]:
            yield []


def test_only_plain_functions_have_residents() -> None:
    with pytest.raises(DefinitionError, match="'cache' is a resident, and it is an async generator"):

        @dyorc.program(batched=False)
        async def decode(cache: dyorc.Resident[list[int]]) -> AsyncIterator[V]:
            yield np.zeros(2)


def test_what_takes_a_stream_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "takes_a_stream.py"
    file.write_text(_TAKES_STREAM)
    message = "workflow 'shorten' cannot be a model: it takes the stream 'words', which no request can pass; serve a workflow"
    with pytest.raises(DefinitionError, match=message):
        ModelRegistry.of([load(f"{file}:shorten")])
    with pytest.raises(DefinitionError, match=message):
        load_bundle(Bundle.of(f"{file}:shorten", "takes_a_stream"), {})


_TAKES_STREAM = """
from collections.abc import AsyncIterator
import numpy as np
import dyorc

Word = dyorc.Bytes[np.ndarray, ""]

@dyorc.workflow
async def shorten(words: AsyncIterator[Word]) -> AsyncIterator[Word]:
    async for word in words:
        yield word
"""


def test_a_workflow_is_a_function_of_its_own() -> None:
    async def scaled(x: V, factor: float) -> V:
        return x

    with pytest.raises(DefinitionError, match=r"decorates an `async def`, got functools\.partial"):
        dyorc.workflow(name="doubled")(functools.partial(scaled, factor=2.0))
