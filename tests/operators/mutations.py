"""Makes mistakes on purpose, each the same in the planners' rule and in the verifier's definition, so that a proof would hold.

Nothing but torch can tell.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from dyorc.planner.program import axes, rules, strategies
from dyorc.planner.program.graph import Argument, Node, Value
from dyorc.planner.program.rules import Rule
from dyorc.planner.verify.algebra import NumbersAlgebra
from dyorc.planner.verify.numbers import Array
from tests.operators import gathering
from tests.operators.misreadings import Misreading
from tests.operators.results import Result as Outcome
from tests.operators.results import check_meaning, check_rule
from tests.operators.samples import OperationSample


@contextmanager
def made(mistake: Misreading) -> Generator[None]:
    """Makes a mistake in rules and definitions alike while in the context."""
    right_rule, right_compute = rules.rule_of, NumbersAlgebra.compute

    def rule(node: Node, values: Mapping[str, Value]) -> Rule | None:
        return right_rule(mistake.misread(node), values) if node.op.split(".")[1] == mistake.op else right_rule(node, values)

    def compute(
        self: NumbersAlgebra,
        op: str,
        arguments: Sequence[Argument],
        keywords: Sequence[tuple[str, Argument]],
        tensors: Mapping[str, Array],
        output_shape: tuple[int, ...],
    ) -> tuple[Array, ...]:
        if op.split(".")[1] == mistake.op:
            node = mistake.misread(Node(name="", op=op, arguments=tuple(arguments), keywords=tuple(keywords), outputs=()))
            op, arguments, keywords = node.op, node.arguments, node.keywords
        return right_compute(self, op, arguments, keywords, tensors, output_shape)

    with ExitStack() as stack:
        for module in (axes, strategies, gathering):
            stack.enter_context(patch.object(module, "rule_of", rule))
        stack.enter_context(patch.object(NumbersAlgebra, "compute", compute))
        stack.callback(axes.axes_of.cache_clear)
        axes.axes_of.cache_clear()
        yield


def noticed_by(mistake: Misreading, samples: Iterable[OperationSample]) -> list[str]:
    """Returns which comparisons with torch notice a mistake: of the rule, of the definition."""
    by: dict[str, None] = {}
    with made(mistake):
        for sample in samples:
            if sample.name == mistake.op and len(by) < 2:
                for name, check in (("rule", check_rule), ("definition", check_meaning)):
                    outcome = Outcome()
                    if name not in by:
                        check(sample, outcome)
                    if outcome.wrong:
                        by[name] = None
    return list(by)
