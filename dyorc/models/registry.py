"""The models of an orchestrator: the user's workflows, and the programs that they need."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow, as_model, of_program
from dyorc.errors import DefinitionError
from dyorc.models.offers import ModelKey, Offer, Offers, VersionTraffic


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A version of a model, and which requests it gets."""

    key: ModelKey
    workflow: Workflow
    is_program: bool = False
    traffic: VersionTraffic | None = None

    def offer(self) -> Offer:
        """Returns it as it is offered."""
        return Offer.of(self.key, self.workflow, is_program=self.is_program, traffic=self.traffic)


class ModelRegistry:
    """Workflows and their programs; each is a model. For the event loop's thread.

    Attributes:
        workflows: The workflow of each model.
        programs: The programs to deploy at the start.
        twins: Programs that are replaced by others of the same name at the start.
        offers: The models as gateways see them.
    """

    def __init__(self, workflows: Mapping[str, Workflow], programs: Mapping[str, Program]) -> None:
        parts = [ServedModel(ModelKey(name), workflow) for name, workflow in workflows.items()]
        parts += [
            ServedModel(ModelKey(name), of_program(program), is_program=True)
            for name, program in programs.items()
            if program.is_model
        ]
        self.programs = tuple(programs.values())
        self.twins: tuple[Program, ...] = ()
        self.workflows: dict[ModelKey, Workflow] = {}
        self.offers = Offers()
        self.change(parts)

    @classmethod
    def of_parts(cls, parts: Sequence[ServedModel], lingering: Sequence[ServedModel] = ()) -> Self:
        """Collects versions of workflows. Programs of the same name are the same; the first is used for all.

        Args:
            lingering: See `change`.
        """
        registry = cls({}, {})
        programs = list(dict.fromkeys(program for part in (*parts, *lingering) for program in part.workflow.programs))
        owners: dict[str, Program] = {}
        for program in programs:
            owners.setdefault(program.name, program)
        registry.programs = tuple(owners.values())
        registry.twins = tuple(program for program in programs if owners[program.name] is not program)
        registry.change(parts, lingering)
        return registry

    def change(self, parts: Sequence[ServedModel], lingering: Sequence[ServedModel] = ()) -> None:
        """Replaces the models on offer. Of several versions of a model, the first is the default.

        Args:
            lingering: Versions that are no longer on offer, but still run for earlier requests.
        """
        self.workflows.clear()
        self.workflows.update((part.key, part.workflow) for part in (*lingering, *parts))
        self.offers.change([part.offer() for part in parts])

    @classmethod
    def of(cls, targets: Iterable[Workflow | Program]) -> Self:
        """Collects workflows and programs.

        Raises:
            DefinitionError: If two of them have the same name, or one cannot be a model.
        """
        workflows: dict[str, Workflow] = {}
        programs: dict[str, Program] = {}
        for target in targets:
            if isinstance(target, Workflow) and workflows.setdefault(target.name, target) is not target:
                raise DefinitionError(f"two workflows are named {target.name!r}; rename one with @dyorc.workflow(name=...)")
            as_model(target)
            for program in (target,) if isinstance(target, Program) else target.programs:
                if programs.setdefault(program.name, program) is not program:
                    raise DefinitionError(f"two programs are named {program.name!r}; rename one with .with_options(name=...)")
        if clash := sorted(workflows.keys() & programs.keys()):
            raise DefinitionError(f"a workflow and a program are both named {clash[0]!r}, and both are models; rename one")
        return cls(workflows, programs)
