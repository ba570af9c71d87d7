"""`@dyorc.workflow`: an ordinary ``async def`` that calls programs and other workflows. If it yields, it answers in parts."""

import inspect
import sysconfig
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias, overload

from dyorc.authoring.context import record_call
from dyorc.authoring.program import Program, check_name
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import Signature
from dyorc.core.reserved_names import find_conflict
from dyorc.errors import DefinitionError

_LIBRARIES = tuple(sysconfig.get_paths()[place] for place in ("stdlib", "purelib", "platlib"))

WorkflowFunction: TypeAlias = Callable[..., Coroutine[Any, Any, Any] | AsyncIterator[Any]]


@dataclass(frozen=True, eq=False)
class Workflow:
    """A workflow. Calling it inside another workflow starts a task and returns its Ref; its Stream, if it yields.

    Attributes:
        function: The user's coroutine function, or async generator function.
        declared_programs: Programs that cannot be found by reading its code (see `programs`).
        wait_for_effects: Whether a request is answered only when all its effects have happened.
        code: A short digest of the code that it was loaded from; empty where that is unknown.
    """

    name: str
    function: WorkflowFunction
    signature: Signature
    declared_programs: tuple[Program, ...] = ()
    wait_for_effects: bool = False
    code: str = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Starts it as a task of the running workflow; does not wait. Returns a `Ref`; a `Stream`, if the workflow yields."""
        return record_call("workflow", self, args, kwargs)

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """Every program it may call, found by reading its code and the code of the workflows and functions it names.

        It reads globals, closures, attributes of modules, and programs in global lists, tuples and dicts. Programs reached
        in another way have to be declared: ``@dyorc.workflow(programs=[...])``.

        Raises:
            DefinitionError: If two of them have the same name.
        """
        by_name: dict[str, Program] = {}
        for program in _reachable(self):
            if isinstance(program, Program) and by_name.setdefault(program.name, program) is not program:
                raise DefinitionError(
                    f"workflow {self.name!r} calls two programs named {program.name!r}; rename one with .with_options(name=...)"
                )
        return tuple(by_name.values())

    def reachable_workflows(self) -> list["Workflow"]:
        """Returns itself and every workflow it may call, found in the same way. Cost: reads the code anew."""
        return [part for part in _reachable(self) if isinstance(part, Workflow)]

    @cached_property
    def is_streaming(self) -> bool:
        """Whether it answers in parts: its function yields. The outputs of its signature are those of one part."""
        return inspect.isasyncgenfunction(self.function)

    @cached_property
    def returned(self) -> str:
        """Says that it returned something, for the text of an error; made once, as every request is checked."""
        return f"workflow {self.name!r} returned"

    @cached_property
    def is_pure(self) -> bool:
        """Whether nothing it may call has an effect."""
        return all(program.options.pure for program in self.programs)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r})"


def of_program(program: Program) -> Workflow:
    """Returns the workflow that makes one call of `program`, to serve a single program as a model.

    Raises:
        DefinitionError: If only workflows can call it: it takes a stream, or has residents.
    """
    signature = program.signature.with_statics()
    _check_names(signature)
    needs = [f"takes the stream {spec.name!r}" for spec in program.signature.streams]
    needs += [f"has the resident {spec.name!r}" for spec in program.signature.residents]
    if needs:
        raise DefinitionError(
            f"program {program.name!r} cannot be a model by itself: it {needs[0]}; serve a workflow that calls it"
        )
    if program.is_streaming:

        async def stream(*tensors: Ref, **statics: Any) -> AsyncIterator[Ref]:
            async for part in program(*tensors, **statics):
                yield part

        return Workflow(program.name, stream, signature, (program,))

    async def call(*tensors: Ref, **statics: Any) -> Ref:
        return program(*tensors, **statics)

    return Workflow(program.name, call, signature, (program,))


def as_model(target: Workflow | Program) -> Workflow:
    """Returns what is served as a model: the workflow itself, or one that makes one call of a program.

    Raises:
        DefinitionError: If only workflows can call it, as it takes a stream or has residents.
    """
    if isinstance(target, Program):
        return of_program(target)
    if streams := target.signature.streams:
        raise DefinitionError(
            f"workflow {target.name!r} cannot be a model: it takes the stream {streams[0].name!r}, which no request can pass; "
            f"serve a workflow that calls it"
        )
    return target


@overload
def workflow(function: WorkflowFunction, /) -> Workflow: ...
@overload
def workflow(
    *, name: str | None = None, programs: Sequence[Program] = (), wait_for_effects: bool = False
) -> Callable[[WorkflowFunction], Workflow]: ...
def workflow(
    function: WorkflowFunction | None = None,
    /,
    *,
    name: str | None = None,
    programs: Sequence[Program] = (),
    wait_for_effects: bool = False,
) -> Any:
    """Declares a workflow.

    The function must be deterministic given the results of its calls: it may be run again from its start. Its inputs are
    Refs, or Streams where annotated ``AsyncIterator[...]``; it may await Refs, `when`, `choose`, `gather` and `collect`, read
    Streams by ``async for``, and nothing else. If it yields, each value is sent as a part of the answer; its return annotation
    is then ``AsyncIterator[...]`` of a part's type.

    Args:
        name: Its name as a model; the function's by default.
        programs: Programs it calls that cannot be found by reading its code.
        wait_for_effects: Whether a request is answered only when all programs with an effect that it called have run, awaited or
            not; if one of these fails, so does the request. Otherwise the answer does not wait, and later failures are only
            logged and counted. Only the option of the workflow that a client calls counts, not of workflows that it calls.

    Raises:
        DefinitionError: If it is not an ``async def``, an annotation is missing, or a name is the protocol's.
    """

    def decorate(function: WorkflowFunction) -> Workflow:
        is_streaming = inspect.isasyncgenfunction(function)
        if not (is_streaming or inspect.iscoroutinefunction(function)) or not hasattr(function, "__code__"):  # as a partial
            raise DefinitionError(f"@dyorc.workflow decorates an `async def`, got {function!r}")
        chosen = name or function.__name__
        if not isinstance(wait_for_effects, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"workflow {chosen!r}: wait_for_effects is {wait_for_effects!r}, expected True or False")
        check_name(f"workflow {chosen!r}", chosen)
        if not isinstance(programs, list | tuple):  # a single program is no list of one
            raise DefinitionError(f"workflow {chosen!r}: programs is {programs!r}, expected a list of programs")
        for listed in programs:
            if not isinstance(listed, Program):
                raise DefinitionError(f"workflow {chosen!r}: programs has {listed!r}, expected programs")
        signature = Signature.of(f"workflow {chosen!r}", function, is_streaming=is_streaming)
        _check_names(signature)
        if signature.residents:
            raise DefinitionError(
                f"workflow {chosen!r}: {signature.residents[0].name!r} is a resident, which stays in the process of a program; "
                f"a workflow passes it from one program to another, and neither takes nor returns it"
            )
        return Workflow(chosen, function, signature, tuple(programs), wait_for_effects)

    return decorate if function is None else decorate(function)


def _check_names(signature: Signature) -> None:
    """Refuses names that requests and answers use for something else.

    Raises:
        DefinitionError: If a parameter or output has such a name.
    """
    kinds: dict[str, Sequence[str]] = {"parameter": signature.names(), "output": signature.outputs.names}
    for kind, names in kinds.items():
        for name in names:
            if reason := find_conflict(name):
                raise DefinitionError(f"{signature.owner}: no {kind} can be called {name!r}: {reason}; choose another name")


def _reachable(root: Workflow) -> Iterator[Program | Workflow]:
    seen: set[int] = set()
    pending: list[Any] = [root]
    while pending:
        thing = pending.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        match thing:
            case Program():
                yield thing
            case Workflow():
                yield thing
                pending.extend((*thing.declared_programs, thing.function))
            case FunctionType() if _is_of_user(thing, root):
                pending.extend(_named_in(thing))
            case Mapping():
                pending.extend(thing.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            case list() | tuple():
                pending.extend(thing)  # pyright: ignore[reportUnknownArgumentType]
            case _:
                pass


def _is_of_user(function: FunctionType, root: Workflow) -> bool:
    """Returns whether a function is the user's. Libraries are not read, or the search would go through all of NumPy."""
    package = _package_of(function)
    if package is None or package == _package_of(root.function):
        return True
    return not function.__code__.co_filename.startswith((*_LIBRARIES, "<"))


def _package_of(function: Callable[..., Any]) -> str | None:
    """Returns the package of a function; None if it has no module, as one that `exec` made without a ``__name__``."""
    module: Any = function.__module__
    return module.partition(".")[0] if isinstance(module, str) else None


_READ = (FunctionType, Program, Workflow, Mapping, list, tuple)
"""Types of values that may be a program, or lead to one."""


def _named_in(function: FunctionType) -> Iterator[Any]:
    """Yields values that the code of `function` (and of functions nested in it) names, if they may lead to programs."""
    names: set[str] = set()
    codes: list[CodeType] = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes.extend(const for const in code.co_consts if isinstance(const, CodeType))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell: the name is bound later
            continue
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        if isinstance(value, ModuleType):
            yield from _attributes_named(value, names, depth=4)
        elif isinstance(value, _READ):
            yield value
        else:
            yield from _own_attributes(value, names)


def _own_attributes(value: Any, names: Iterable[str]) -> list[Any]:
    """Returns the attributes of an object or a class that the code may mean: ``models.small``."""
    try:
        own: Mapping[str, Any] = vars(value)
    except Exception:  # it has no attributes, or does not show them
        return []
    return [attribute for attribute in map(own.get, sorted(names)) if isinstance(attribute, _READ)]


def _attributes_named(module: ModuleType, names: set[str], depth: int) -> Iterator[Any]:
    """Yields attributes of a module, and of modules in it, that the code may mean: ``package.module.program``."""
    for name in sorted(names & vars(module).keys()):
        value = vars(module)[name]
        if not isinstance(value, ModuleType):
            yield value
        elif depth and value is not module:
            yield from _attributes_named(value, names, depth - 1)
