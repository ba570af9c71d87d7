"""What an orchestrator runs: the user's workflows by model, and the programs that they need."""

from collections.abc import Iterable, Mapping
from typing import Self

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow, of_program
from dyorc.errors import DefinitionError
from dyorc.offers import ModelKey, Offer, Offers


class Repertoire:
    """Workflows, each of them a model, and their programs, each of which is a model, too. For the event loop's thread.

    Attributes:
        workflows: What a request for a model runs.
        programs: What has to be deployed.
        offers: What gateways know of it.
    """

    def __init__(self, workflows: Mapping[str, Workflow], programs: Mapping[str, Program]) -> None:
        self.programs = tuple(programs.values())
        self.workflows = {ModelKey(name): workflow for name, workflow in workflows.items()}
        offers = [Offer.of(key, workflow) for key, workflow in self.workflows.items()]
        for name, program in programs.items():
            self.workflows[ModelKey(name)] = alone = of_program(program)
            offers.append(Offer.of(ModelKey(name), alone, is_program=True))
        self.offers = Offers(offers)

    @classmethod
    def of(cls, targets: Iterable[Workflow | Program]) -> Self:
        """Collects workflows and programs.

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
        return cls(workflows, programs)
