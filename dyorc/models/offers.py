"""Offers: models as plain values, which travel to gateways that do not have the user's code.

The process that runs workflows makes them (`dyorc.models.registry`); the gateway's catalog shows them.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import msgspec

from dyorc.authoring.batching import Padding
from dyorc.authoring.program import Program
from dyorc.authoring.signature import OutputKind, OutputSpec, Signature, StaticSpec, StaticValue, StreamSpec
from dyorc.authoring.spec import Dim, Framework, TensorSpec, ValueSpec
from dyorc.authoring.values import ContentKind
from dyorc.authoring.workflow import Workflow
from dyorc.core.tensor import DType

FIRST_VERSION = "1"

_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}


class ModelKey(NamedTuple):
    """A model, by name and version."""

    name: str
    version: str = FIRST_VERSION


class VersionTraffic(NamedTuple):
    """Which requests a version gets; for the fields, see `Offer`."""

    share: float = 0.0
    shadow: float = 0.0
    sticky: str = ""


class TensorOffer(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A `TensorSpec`. Each dimension is its size, its name, or None for any size."""

    name: str
    dtype: DType
    dims: tuple[int | str | None, ...]
    framework: Framework
    variadic_at: int | None = None
    is_finite: bool = False

    @classmethod
    def of(cls, spec: TensorSpec) -> Self:
        """Returns a spec as plain values."""
        dims = tuple(dim.name if dim.size is None else dim.size for dim in spec.dims)
        return cls(spec.name, spec.dtype, dims, spec.framework, spec.variadic_at, spec.is_finite)

    def spec(self) -> TensorSpec:
        """Returns the spec that this was made of."""
        dims = tuple(Dim(size=dim) if isinstance(dim, int) else Dim(name=dim) for dim in self.dims)
        return TensorSpec(self.name, self.dtype, dims, self.framework, self.variadic_at, self.is_finite)


class StaticOffer(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A `StaticSpec`. A default of None means no default."""

    name: str
    kind: Literal["bool", "int", "float", "str"]
    default: StaticValue | None = None

    @classmethod
    def of(cls, spec: StaticSpec) -> Self:
        """Returns a spec as plain values."""
        values = spec.described()
        return cls(values["name"], values["type"], values["default"])

    def spec(self) -> StaticSpec:
        """Returns the spec that this was made of."""
        default = inspect.Parameter.empty if self.default is None else self.default
        return StaticSpec(self.name, _TYPES[self.kind], default)


class ValueOffer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A `ValueSpec`, without the user's type."""

    name: str
    kind: ContentKind
    schema: Mapping[str, Any] = {}
    default: bytes | None = None

    @classmethod
    def of(cls, spec: ValueSpec) -> Self:
        """Returns a spec as plain values."""
        return cls(spec.name, spec.kind, spec.schema, spec.default)

    def spec(self) -> ValueSpec:
        """Returns the spec that this was made of, without the user's type."""
        return ValueSpec(self.name, DType.BYTES, (), Framework.NUMPY, kind=self.kind, schema=self.schema, default=self.default)


ParameterOffer: TypeAlias = TensorOffer | StaticOffer | ValueOffer


def _offer_of(spec: TensorSpec) -> TensorOffer | ValueOffer:
    return ValueOffer.of(spec) if isinstance(spec, ValueSpec) else TensorOffer.of(spec)


class SignatureOffer(msgspec.Struct, frozen=True, array_like=True):
    """A `Signature`, but for the user's class that groups its outputs."""

    owner: str
    parameters: tuple[ParameterOffer, ...]
    grouping: OutputKind
    outputs: tuple[TensorOffer | ValueOffer, ...]

    @classmethod
    def of(cls, signature: Signature) -> Self:
        """Returns a signature as plain values."""
        parameters: list[ParameterOffer] = [
            _offer_of(spec) if isinstance(spec, TensorSpec) else StaticOffer.of(spec)
            for spec in signature.parameters
            if not isinstance(spec, StreamSpec)  # no request can pass a stream
        ]
        outputs = tuple(map(_offer_of, signature.outputs.tensors))
        return cls(signature.owner, tuple(parameters), signature.outputs.kind, outputs)

    def signature(self) -> Signature:
        """Returns the signature that this was made of; named outputs are grouped as a dict."""
        outputs = OutputSpec(self.grouping, tuple(output.spec() for output in self.outputs))
        return Signature(self.owner, tuple(parameter.spec() for parameter in self.parameters), outputs)


class ProgramOffer(msgspec.Struct, frozen=True):
    """A program that a model may call.

    Attributes:
        has_effect: Whether it must not be run twice for one call: it is neither pure nor idempotent.
        num_replicas: At the start.
        buckets: `Padding.buckets`.
    """

    name: str
    has_effect: bool = False
    max_batch_size: int = 1
    max_queued_calls: int = 1
    execution_timeout_s: float = 60.0
    num_replicas: int = 1
    is_on_gpu: bool = False
    buckets: Mapping[str, tuple[int, ...]] = {}

    @classmethod
    def of(cls, program: Program) -> Self:
        """Returns a program as it is offered."""
        options = program.options
        return cls(
            name=program.name,
            has_effect=not options.is_repeatable,
            max_batch_size=options.max_batch_size,
            max_queued_calls=options.max_queued_calls,
            execution_timeout_s=options.execution_timeout_s,
            num_replicas=options.bounds.num_at_start,
            is_on_gpu=bool(options.num_gpus),
            buckets={} if options.pad is None else options.pad.buckets,
        )

    @property
    def padding(self) -> Padding | None:
        """How it is padded, as far as that limits sizes."""
        return Padding(dict(self.buckets)) if self.buckets else None


class Offer(msgspec.Struct, frozen=True):
    """A model.

    Attributes:
        is_program: Whether it is a single program, the only one in `programs`.
        tally: The name under which its requests are counted.
        share: The fraction of the requests without a version that it gets, if it is not the first offer of its name.
        shadow: The fraction of the first offer's requests that are copied to it.
        sticky: Of the first offer: the header whose value picks the version of a request, or `STICKY_BY_KEY`; empty: it is drawn.
        programs: The programs that a request may call.
        description: What the workflow does, from its docstring; a gateway may not have the user's code.
    """

    name: str
    version: str
    signature: SignatureOffer
    programs: tuple[ProgramOffer, ...]
    is_streaming: bool = False
    is_program: bool = False
    share: float = 0.0
    tally: str = ""
    description: str = ""
    shadow: float = 0.0
    sticky: str = ""

    @classmethod
    def of(cls, key: ModelKey, workflow: Workflow, *, is_program: bool = False, traffic: "VersionTraffic | None" = None) -> Self:
        """Returns a workflow as it is offered."""
        share, shadow, sticky = traffic or VersionTraffic()
        programs = tuple(map(ProgramOffer.of, workflow.programs))
        signature = SignatureOffer.of(workflow.signature)
        description = "" if is_program else inspect.getdoc(workflow.function) or ""
        return cls(
            *key, signature, programs, workflow.is_streaming, is_program, share, workflow.name, description, shadow, sticky
        )  # fmt: skip

    @property
    def key(self) -> ModelKey:
        return ModelKey(self.name, self.version)

    @property
    def workflow(self) -> "OfferedWorkflow":
        """What clients see of its workflow."""
        return OfferedWorkflow(self.is_streaming, self.signature.signature())


class OfferedWorkflow(NamedTuple):
    """A workflow, as far as its clients see it."""

    is_streaming: bool
    signature: Signature

    @classmethod
    def of(cls, workflow: Workflow) -> Self:
        """Returns what clients see of a workflow."""
        return cls(workflow.is_streaming, workflow.signature)


class Offers:
    """The current offers. For the event loop's thread.

    Attributes:
        all: The offers. Of several versions of a model, the first is the default.
        unheard: Groups that have not been reached yet; they may have models that this process does not know.
    """

    def __init__(self, offers: Sequence[Offer] = (), unheard: Sequence[str] = ()) -> None:
        self.all = tuple(offers)
        self.unheard = tuple(unheard)
        self._watchers: list[Callable[[], None]] = []

    def change(self, offers: Sequence[Offer], unheard: Sequence[str] = ()) -> None:
        """Replaces the offers."""
        self.all = tuple(offers)
        self.unheard = tuple(unheard)
        for changed in self._watchers:
            changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Calls a function after each change."""
        self._watchers.append(changed)
