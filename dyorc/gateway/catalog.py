"""The models that the gateway offers: workflows, and every single program."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from dyorc.arrays import Array, inline
from dyorc.authoring.program import Program
from dyorc.authoring.signature import Signature, StaticValue
from dyorc.authoring.workflow import Workflow, of_program
from dyorc.errors import DefinitionError, UnknownModelError
from dyorc.protocol.parameters import PARAMETERS, REPEATABLE


@dataclass(frozen=True)
class Model:
    """One model.

    Attributes:
        workflow: What a request runs.
        program: The program, if the model is a single one.
    """

    workflow: Workflow
    program: Program | None = None

    @property
    def name(self) -> str:
        return self.workflow.name

    @property
    def signature(self) -> Signature:
        return self.workflow.signature

    @property
    def programs(self) -> Sequence[Program]:
        return self.workflow.programs

    @property
    def is_streaming(self) -> bool:
        """Whether it answers in parts."""
        return self.workflow.is_streaming

    @property
    def platform(self) -> str:
        """The kind of model, for the protocol."""
        return "dyorc_program" if self.program else "dyorc_workflow"

    @property
    def is_repeatable(self) -> bool:
        """Whether a request may be repeated even if it has run: no program of it has an effect that counts twice."""
        return all(program.options.is_repeatable for program in self.programs)

    def metadata(self) -> dict[str, Any]:
        """Returns the protocol's model metadata. Shapes are those of one item; the server does the batching."""
        signature = self.signature
        return {
            "name": self.name,
            "versions": ["1"],
            "platform": self.platform,
            "inputs": [{"name": spec.name, "datatype": spec.dtype, "shape": spec.wire_shape} for spec in signature.inputs],
            "outputs": [
                {"name": spec.name, "datatype": spec.dtype, "shape": spec.wire_shape} for spec in signature.outputs.tensors
            ],
            "properties": self._properties(),
        }

    def _properties(self) -> dict[str, str]:
        found = {REPEATABLE: "true" if self.is_repeatable else "false"}
        if self.signature.statics:
            found[PARAMETERS] = msgspec.json.encode([static.described() for static in self.signature.statics]).decode()
        return found

    def check(self, arrays: Sequence[Array], statics: tuple[StaticValue, ...]) -> None:
        """Checks the inputs of a request.

        Raises:
            InvalidInputError: If one does not fit the model.
        """
        tensors = [inline(array) for array in arrays]
        self.signature.check_inputs(tensors)
        if self.program is not None:
            self.program.batch_keys.key(tensors, statics)
        self.signature.check_finite(arrays)


@dataclass(frozen=True)
class Catalog:
    """All models by name, and the programs they need."""

    models: dict[str, Model] = field(default_factory=dict[str, Model])
    programs: tuple[Program, ...] = ()

    @classmethod
    def of(cls, targets: Iterable[Workflow | Program]) -> Self:
        """Collects models and programs.

        Raises:
            DefinitionError: If two of them have the same name.
        """
        workflows: dict[str, Workflow] = {}
        programs: dict[str, Program] = {}
        for target in targets:
            if isinstance(target, Workflow) and workflows.setdefault(target.name, target) is not target:
                raise DefinitionError(f"two workflows are named {target.name!r}; rename one with @dyorc.workflow(name=...)")
            for program in (target,) if isinstance(target, Program) else target.programs:
                if programs.setdefault(program.name, program) is not program:
                    raise DefinitionError(f"two programs are named {program.name!r}; rename one with .with_options(name=...)")
        if clash := sorted(workflows.keys() & programs.keys()):
            raise DefinitionError(f"a workflow and a program are both named {clash[0]!r}, and both are models; rename one")
        models = {name: Model(workflow) for name, workflow in workflows.items()}
        models |= {name: Model(of_program(program), program) for name, program in programs.items()}
        return cls(models, tuple(programs.values()))

    def model(self, name: str, version: str | None = None) -> Model:
        """Returns a model by name.

        Raises:
            UnknownModelError: If there is none, or not this version.
        """
        model = self.models.get(name)
        if model is None:
            raise UnknownModelError(f"unknown model {name!r}; served are {sorted(self.models)}")
        if version not in (None, "1"):
            raise UnknownModelError(f"model {name!r} has no version {version!r}; it has ['1']")
        return model
