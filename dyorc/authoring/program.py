"""`@dyorc.program`: a batched, pure tensor function, with its weights."""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Self, overload

from dyorc.authoring.batching import BatchKeys, Padding
from dyorc.authoring.call_cost import CallCost
from dyorc.authoring.call_style import CallStyle
from dyorc.authoring.class_checks import check_class
from dyorc.authoring.context import current_recorder, record_call
from dyorc.authoring.signature import Signature
from dyorc.core.plan_head import read_plan_head
from dyorc.errors import DefinitionError
from dyorc.scaling.autoscaling import bounds_of
from dyorc.scaling.model import Bounds
from dyorc.scaling.value_checks import (
    BOOL,
    OPTIONAL_POSITIVE,
    OPTIONAL_POSITIVE_COUNT,
    POSITIVE_COUNT,
    POSITIVE_SECONDS,
    Check,
    is_number,
    one_of,
)
from dyorc.system.processors import num_processors

P = ParamSpec("P")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_DEVICE = re.compile(r"[a-z]+(:[0-9]{1,4})?")
_MAX_ONGOING = 32
_MAX_BATCH_SIZE = 32
_BY_EFFECT: Any = None
"""In place of a batch size that the author does not give: it follows from other options."""


def check_name(owner: str, name: Any) -> None:
    """Checks the name of a program or workflow, which appears in paths, metrics and file names.

    Raises:
        DefinitionError: If it is not a text of the allowed characters; names the wrong one.
    """
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"{owner}: its name is {name!r}, expected a text")
    if not _NAME.fullmatch(name):
        wrong = next(letter for letter in name if not _NAME.fullmatch(letter))
        raise DefinitionError(
            f"{owner}: a name is made of letters (a-z, A-Z), digits, '_', '-' and '.', and {wrong!r} is none of these; "
            f'give it another one, such as name="..." where it is declared'
        )


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """How a program is batched, deployed and recovered.

    Attributes:
        batched: Whether it takes a batch; its tensors then start with a dimension "batch". If not, one call at a time.
        max_batch_size: Most calls in a batch. None: 32; but 1 for a program with an effect that is not `idempotent`. A batch that
            raises is not run again there, so all of its calls fail, those of other clients too; who gives a size accepts that.
        pad: Buckets for dimensions whose size differs between calls. Without it, only equal shapes share a batch.
        num_replicas: Copies that Ray Serve keeps; "auto" scales between 1 and 100.
        autoscaling_config: Options of Ray Serve's autoscaling, e.g. ``{"min_replicas": 0, "max_replicas": 4}``, instead of
            `num_replicas`; `dyorc.scaling.autoscaling` says what each means here.
        ray_actor_options: Passed on to Ray Serve: ``num_cpus``, ``num_gpus`` (fractions too), ``resources``, ...
        in_process: Whether it runs in the server's own process although other programs run on Ray. It then has one copy, and
            `num_replicas`, `autoscaling_config` and `ray_actor_options` have no effect. ``dyorc serve --in-process`` does this
            for all programs.
        thread: Where its batches run in the server's own process. "auto": on a separate thread, or on the event loop while they
            prove short and do nothing but compute. "own": always on the thread that loaded it, for libraries that bind objects
            to a thread; programs with effects that must not be repeated run there anyway. A replica has one thread for all.
        pure: Whether it has no effect but its result. An impure program is never run on a guess and not repeated, and runs one
            call at a time unless `max_batch_size` says otherwise.
        idempotent: Whether an impure program may be repeated all the same, after a failure. Its batches are as large as others.
        warmup: Whether a program that is a class runs a batch of zeros after it was loaded, so that no request pays for the slow
            first batch of a library. A failure is ignored. Not for an ``async def`` or a generator: its call could go to others.
        execution_timeout_s: After this many seconds in one batch, a replica counts as hung and is replaced.
        batch_invariant: Whether the code runs separately for each call of a batch, so that no bit of a result depends on the
            other calls. Batches then compute no faster; only messages are shared.
        max_queued_calls: While more than these wait, requests that need the program are refused.
        plan: A file that ``dyorc plan --inference`` wrote. A replica is then a group of processes, which split the first module
            that the program loads by `dyorc.load_module`; `ray_actor_options` apply to each of these processes.
        max_ongoing: For a program that is an ``async def`` or a generator: how many calls run at once on one replica. None: 32 on
            an event loop, and 1 for a plain generator, whose calls take turns on one thread.
        max_parts: For a program that yields: a call that yields more parts fails.
        group: Programs of one group share a process, and residents (`dyorc.Resident`) can be passed among them. Those that are
            ``async`` share an event loop. None: the program is a group of its own.
        max_resident_bytes: How many bytes of residents a process of its group may hold; the smallest of the group counts.
            None: no limit.
        device: Where its torch tensors are: ``cuda``, ``cuda:1``, or ``cpu`` for the host, as without it. Its inputs come to the
            device, and results that lie there stay there until somebody else needs them. It must not write to an input in place,
            nor to a result that it has returned: others read them.
        cuda_graphs: Whether it is captured as CUDA graphs when it is loaded, one for each size of batches (powers of two up to
            `max_batch_size`) and each bucket, and replayed instead of run: for many small kernels. All shapes
            must be known by sizes and buckets, and its code runs only while it is captured. Without effect on the host.
        sees_requests: Whether its code may call `dyorc.request` or `dyorc.requests`; what these return travels with each call.
        max_batch_cost: Most that the calls of a batch may cost together, beside `max_batch_size`. A call that costs more by
            itself runs alone.
        cost: What a call costs: a pure function of its inputs, by their names, as many as it takes: of a tensor it gets an object
            with ``shape`` (after padding, without "batch") and ``dtype``. It returns a number of at least 0:
            ``lambda tokens: tokens.shape[0]``. The time of a batch is then learned over its cost, instead of its size.
    """

    batched: bool = True
    max_batch_size: int = _BY_EFFECT
    pad: Padding | None = None
    num_replicas: int | Literal["auto"] = 1
    autoscaling_config: Mapping[str, Any] | None = None
    ray_actor_options: dict[str, Any] = field(default_factory=dict[str, Any])
    in_process: bool = False
    thread: Literal["auto", "own"] = "auto"
    pure: bool = True
    idempotent: bool = False
    warmup: bool = True
    execution_timeout_s: float = 60.0
    batch_invariant: bool = False
    max_queued_calls: int = 16_384
    plan: str | None = None
    max_ongoing: int | None = None
    max_parts: int = 65_536
    group: str | None = None
    max_resident_bytes: int | None = None
    max_batch_cost: float | None = None
    cost: Callable[..., float] | None = None
    sees_requests: bool = False
    device: str | None = None
    cuda_graphs: bool = False
    _has_own_batch_size: ClassVar[bool] = True
    """No option, so no field: whether the author gave `max_batch_size`. Each object has its own."""

    def __post_init__(self) -> None:
        has_own = self.max_batch_size is not _BY_EFFECT
        object.__setattr__(self, "_has_own_batch_size", has_own)
        if not has_own:
            object.__setattr__(self, "max_batch_size", _MAX_BATCH_SIZE if self.is_repeatable else 1)

    def changed(self, **changes: Any) -> Self:
        """Returns the same options with some others. A batch size that nobody gave follows from the new ones."""
        if not self._has_own_batch_size:
            changes.setdefault("max_batch_size", _BY_EFFECT)
        return replace(self, **changes)

    def check_plan(self, owner: str) -> None:
        """Checks that its plan can be served with the other options.

        Raises:
            DefinitionError: It cannot.
            PlanError: Its file cannot be used.
        """
        if self.plan is None:
            return
        max_samples = read_plan_head(self.plan).max_samples
        if self.batched and self.max_batch_size > max_samples:
            raise DefinitionError(
                f"{owner}: max_batch_size is {self.max_batch_size}, and its plan {self.plan} is for at most {max_samples} samples"
            )
        if self.num_gpus % 1:
            raise DefinitionError(f"{owner}: num_gpus is {self.num_gpus}, and each rank of a plan needs a whole device, or none")

    @property
    def num_processes(self) -> int:
        """How many processes compute for a replica; raises PlanError if its plan cannot be served."""
        return 1 if self.plan is None else read_plan_head(self.plan).num_ranks

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may be run again after it failed or its replica was lost."""
        return self.pure or self.idempotent

    @property
    def bounds(self) -> Bounds:
        """The limits of the number of replicas."""
        return bounds_of("a program", self.num_replicas, self.autoscaling_config)

    @property
    def num_cpus(self) -> float:
        """Processors that Ray reserves for a replica: one by default."""
        return float(self.ray_actor_options.get("num_cpus", 1))

    @property
    def num_gpus(self) -> float:
        """Devices that Ray reserves for a replica."""
        return float(self.ray_actor_options.get("num_gpus", 0))

    def check(self, owner: str) -> None:
        """Raises DefinitionError if a value is of another type, or out of range."""
        for name, (expected, is_valid) in _CHECKS.items():
            value = getattr(self, name)
            if not is_valid(value):
                raise DefinitionError(f"{owner}: {name} is {value!r}, expected {expected}")
        for name in ("num_cpus", "num_gpus"):
            num = self.ray_actor_options.get(name, 0)
            if not is_number(num) or num < 0:
                raise DefinitionError(f"{owner}: {name} of ray_actor_options is {num!r}, expected a number of at least 0")
        bounds_of(owner, self.num_replicas, self.autoscaling_config)
        if self.plan is not None and self.in_process:
            raise DefinitionError(f"{owner}: it has a plan, whose ranks are separate processes, so it cannot be in_process")
        if self.plan is not None and self.device is not None:
            raise DefinitionError(f"{owner}: it has a plan, which places its tensors, so device has no meaning; remove one")
        if self.cuda_graphs:
            self._check_graphs(owner)
        if self.pad and not self.batched:
            raise DefinitionError(f"{owner}: pad needs batched=True")
        if (self.cost is None) is not (self.max_batch_cost is None):
            missing = "cost" if self.cost is None else "max_batch_cost"
            raise DefinitionError(f"{owner}: max_batch_cost and cost belong together; {missing} is missing")
        if self.cost is not None and not self.batched:
            raise DefinitionError(f"{owner}: max_batch_cost limits batches, and the program is declared batched=False")

    def _check_graphs(self, owner: str) -> None:
        if self.device is None:
            raise DefinitionError(f"{owner}: cuda_graphs needs a device, such as device='cuda'")
        if not self.pure or self.sees_requests:
            option = "sees_requests=True" if self.pure else "pure=False"
            raise DefinitionError(f"{owner}: with cuda_graphs its code does not run for each batch, so {option} cannot be kept")

    def check_style(self, owner: str, style: CallStyle) -> None:
        """Raises DefinitionError if an option does not fit the kind of function that the program is."""
        if style is CallStyle.PLAIN:
            if self.max_ongoing is not None:
                raise DefinitionError(
                    f"{owner}: max_ongoing is {self.max_ongoing}, but it is {style.value}, which runs one batch at a time; "
                    f"max_batch_size says how many calls a batch has"
                )
        elif self.batched:
            raise DefinitionError(
                f"{owner}: it is {style.value}, which takes one call at a time; declare batched=False "
                f"(max_ongoing says how many run at once on one replica)"
            )
        elif self.cuda_graphs:
            raise DefinitionError(f"{owner}: it is {style.value}; only a plain function can be captured by cuda_graphs")
        elif self.plan is not None:
            raise DefinitionError(
                f"{owner}: it is {style.value}, and has a plan; only a plain function can be split over processes"
            )


_CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(
        ("batched", "in_process", "pure", "idempotent", "warmup", "batch_invariant", "sees_requests", "cuda_graphs"), BOOL
    ),
    **dict.fromkeys(("max_batch_size", "max_queued_calls", "max_parts"), POSITIVE_COUNT),
    **dict.fromkeys(("max_ongoing", "max_resident_bytes"), OPTIONAL_POSITIVE_COUNT),
    "group": ("a text, or None", lambda value: value is None or (isinstance(value, str) and bool(_NAME.fullmatch(value)))),
    "max_batch_cost": OPTIONAL_POSITIVE,
    "cost": ("a function, or None", lambda value: value is None or callable(value)),
    "pad": ("dyorc.pad(...), or None", lambda value: value is None or isinstance(value, Padding)),
    "ray_actor_options": ("a dict of Ray's options", lambda value: isinstance(value, dict)),
    "thread": one_of("auto", "own"),
    "execution_timeout_s": POSITIVE_SECONDS,
    "device": (
        "'cpu', 'cuda', 'cuda:1' and the like, or None",
        lambda value: value is None or (isinstance(value, str) and bool(_DEVICE.fullmatch(value))),
    ),
    "plan": ("the name of a file, or None", lambda value: value is None or isinstance(value, str)),
}
"""Checks of single options; the options of scaling are checked together."""


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """The source of a program: a function, or a class and the arguments of its constructor."""

    target: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class Program:
    """A program, ready to be called in a workflow. Its weights are loaded in its replicas, never here.

    Attributes:
        name: Its name, also as a model of the APIs.
        declared: Its signature as written, with the batch dimension if it is batched.
        signature: Its signature for one item. If it yields, the outputs are a part's.
        style: The kind of function that it is.
        factory: Makes the callable; runs once per replica.
        definition: Its source, to compare it with other programs; None if unknown.
        call_cost: Computes what a call costs; None if it declares no cost.
        overrides: Options from outside its code (`overrides.py`), which its replicas need to know.
        own_name: Its name in its code, if another version of its workflow has that name; otherwise empty.
    """

    name: str
    options: ProgramOptions
    declared: Signature
    signature: Signature
    factory: Callable[[], Callable[..., Any]]
    batch_keys: BatchKeys
    call_cost: CallCost | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    definition: Definition | None = None
    style: CallStyle = CallStyle.PLAIN
    own_name: str = ""

    @classmethod
    def make(
        cls,
        name: str,
        function: Callable[..., Any],
        factory: Callable[[], Callable[..., Any]],
        options: ProgramOptions,
        *,
        skip_first: bool = False,
        definition: Definition | None = None,
    ) -> Self:
        """Reads the signature of `function`.

        Raises:
            DefinitionError: If the signature or the options do not make a program.
        """
        owner = f"program {name!r}"
        check_name(owner, name)
        options.check(owner)
        style = CallStyle.of(function)
        options.check_style(owner, style)
        declared = Signature.of(
            owner, function, skip_first=skip_first, is_streaming=style.is_streaming, has_statics=options.batched
        )
        if style is CallStyle.PLAIN and declared.streams:
            raise DefinitionError(
                f"{owner}: it takes the stream {declared.streams[0].name!r}, and is a plain function; only an `async def` or a "
                f"generator can wait for its parts"
            )
        for stream in declared.streams:
            if stream.is_async is not style.is_async:
                expected = "AsyncIterator" if style.is_async else "Iterator"
                raise DefinitionError(f"{owner}: it is {style.value}, so its stream {stream.name!r} has to be an {expected}[...]")
        if style is not CallStyle.PLAIN and declared.residents:
            raise DefinitionError(
                f"{owner}: {declared.residents[0].name!r} is a resident, and it is {style.value}; only a plain function can take "
                f"or return residents"
            )
        signature = declared.without_batch() if options.batched else declared
        if not options.batched:
            options = options.changed(max_batch_size=1)
        elif not signature.inputs:
            raise DefinitionError(f"{owner}: it takes no tensor, so there is nothing to batch; declare batched=False")
        batch_keys = BatchKeys.of(owner, signature, options.pad)
        call_cost = CallCost.of(name, options.cost, signature, batch_keys)
        return cls(name, options, declared, signature, factory, batch_keys, call_cost, definition=definition, style=style)

    @cached_property
    def is_streaming(self) -> bool:
        """Whether it yields: a call of it is a `Stream`."""
        return self.style.is_streaming

    @property
    def max_ongoing(self) -> int:
        """How many batches run at once on one replica: more than one only if it waits or yields."""
        if self.options.max_ongoing is not None:
            return self.options.max_ongoing
        return _MAX_ONGOING if self.style.is_async else 1

    @property
    def group(self) -> str:
        """The programs with which it shares a process, and residents."""
        return self.options.group or self.name

    @property
    def shares_process(self) -> bool:
        """Whether it is in a process together with others, or holds residents there."""
        return self.options.group is not None or bool(self.signature.residents)

    @property
    def is_model(self) -> bool:
        """Whether clients can call it by itself: what it takes and returns can be sent to them."""
        return not self.signature.streams and not self.signature.residents

    @property
    def can_rebuild(self) -> bool:
        """Whether it can make a resident of a whole chain at once (`dyorc.ChainCall`)."""
        target = None if self.definition is None else self.definition.target
        return any(spec.is_resident for spec in self.signature.outputs.tensors) and callable(getattr(target, "rebuild", None))

    def with_options(self, *, name: str | None = None, **changes: Any) -> Self:
        """Returns the same program under another name or with other options.

        Raises:
            DefinitionError: If the name or an option cannot be used.
        """
        name = self.name if name is None else name
        owner = f"program {name!r}"
        check_name(owner, name)
        if unknown := sorted(changes.keys() - ProgramOptions.__dataclass_fields__.keys()):
            raise DefinitionError(
                f"{owner} has no option {unknown}; known options: {sorted(ProgramOptions.__dataclass_fields__)}"
            )
        options = self.options.changed(**changes)
        options.check(owner)
        options.check_style(owner, self.style)
        if options.batched != self.options.batched:
            raise DefinitionError(f"program {self.name!r}: batched cannot be changed; it belongs to the signature")
        batch_keys = BatchKeys.of(owner, self.signature, options.pad)
        call_cost = CallCost.of(name, options.cost, self.signature, batch_keys)
        return replace(self, name=name, options=options, batch_keys=batch_keys, call_cost=call_cost)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Records a call, inside a workflow; does not wait. Returns a `Ref`; a `Stream`, if the program yields."""
        return record_call("program", self, args, kwargs)

    def __repr__(self) -> str:
        return f"Program({self.name!r})"


class ProgramClass(Generic[P]):
    """A class decorated with `@dyorc.program`. Calling it makes a program; ``__init__`` runs later, once per replica."""

    def __init__(self, cls: Callable[P, Any], options: ProgramOptions, name: str | None = None) -> None:
        self._name = name or _snake_case(cls.__name__)
        self._cls = cls
        self._options = options
        self.__doc__ = cls.__doc__
        self.__name__ = cls.__name__
        self.__wrapped__: Any = cls

    def __getattr__(self, name: str) -> Any:
        """The class's own attributes, which its code reads by its name: ``Base.SIZE`` inside of ``class Base``."""
        if name.startswith("__") or name == "_cls":  # what Python looks for in any object; `_cls` is missing in a new copy
            raise AttributeError(name)
        return getattr(self._cls, name)

    def __instancecheck__(self, instance: Any) -> bool:
        """Lets ``isinstance(other, Small)`` inside ``class Small`` mean the class itself."""
        return isinstance(instance, self.__wrapped__)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        """Lets ``class Large(Small)`` derive from the class itself. `Large` is a program class only if it is decorated, too."""
        return (self._cls,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Program:
        if current_recorder.get() is not None:
            raise DefinitionError(
                f"{self.__name__} is a program class; make the program once, outside the workflow: "
                f"{self._name} = {self.__name__}()"
            )
        method, definition = self._cls.__call__, Definition(self._cls, args, kwargs)
        factory = lambda: self._cls(*args, **kwargs)  # noqa: E731
        return Program.make(self._name, method, factory, self._options, skip_first=True, definition=definition)


@overload
def program(target: Callable[..., Any], /) -> Any: ...
@overload
def program(**options: Any) -> Callable[[Any], Any]: ...
def program(target: Any = None, /, **options: Any) -> Any:
    """Declares a program: a function, or a class whose ``__init__`` loads the weights and whose ``__call__`` computes.

    Args:
        options: The fields of `ProgramOptions`, and ``name``; by default the function's, or the class's in snake case.

    Example:
        >>> @dyorc.program(max_batch_size=32)
        ... class Small:
        ...     def __init__(self): self.net = load("small")       # once per replica
        ...     def __call__(self, image: Float[Tensor, "batch 64"]) -> Float[Tensor, "batch 10"]:
        ...         return self.net(image)
        >>> small = Small()                                         # the program; nothing is loaded yet

    Raises:
        DefinitionError: If the declaration is incomplete; names what is missing.
    """
    name: str | None = options.pop("name", None)
    try:
        parsed = ProgramOptions(**options)
    except TypeError as error:
        raise DefinitionError(f"@dyorc.program: {error}; known options: {sorted(ProgramOptions.__dataclass_fields__)}") from error

    def decorate(target: Any) -> Any:
        if inspect.isclass(target):
            check_class(target)
            return ProgramClass(target, parsed, name)
        if not inspect.isfunction(target):
            raise DefinitionError(f"@dyorc.program decorates a class or a plain function, got {target!r}")
        return Program.make(name or target.__name__, target, lambda: target, parsed, definition=Definition(target))

    return decorate if target is None else decorate(target)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def num_threads() -> int:
    """Returns how many threads a program should use: its replica's share of the machine's cores."""
    return int(os.environ.get("DYORC_NUM_THREADS") or num_processors())
