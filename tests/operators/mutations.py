"""Makes mistakes on purpose, each the same in the planners' rule and in the verifier's definition, so that a proof would hold.

Nothing but torch can tell.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

from dyorc.offline.program import axes, rules, strategies
from dyorc.offline.program.graph import Node, Value
from dyorc.offline.program.rules import Rule
from dyorc.offline.verify import algebra
from dyorc.offline.verify.meanings import Call, Meaning, meaning_of
from dyorc.offline.verify.meanings.call import Result
from dyorc.offline.verify.numbers import Numbers
from tests.operators import gathering
from tests.operators.misreadings import Misreading
from tests.operators.results import Result as Outcome
from tests.operators.results import check_meaning, check_rule
from tests.operators.samples import OperationSample


@contextmanager
def made(mistake: Misreading) -> Generator[None]:
    """Makes a mistake in rules and definitions alike while in the context."""
    right_rule, right_meaning = rules.rule_of, meaning_of

    def rule(node: Node, values: Mapping[str, Value]) -> Rule | None:
        return right_rule(mistake.misread(node), values) if node.op.split(".")[1] == mistake.op else right_rule(node, values)

    def meaning(op: str) -> Meaning:
        if op.split(".")[1] != mistake.op:
            return right_meaning(op)

        def mistaken(numbers: Numbers, call: Call) -> Result:
            keywords = tuple(call.keywords.items())
            node = mistake.misread(Node(name="", op=op, arguments=call.arguments, keywords=keywords, outputs=()))
            read = replace(call, op=node.op.split(".")[1], arguments=node.arguments, keywords=dict(node.keywords))
            return right_meaning(node.op)(numbers, read)

        return mistaken

    with ExitStack() as stack:
        for module in (axes, strategies, gathering):
            stack.enter_context(patch.object(module, "rule_of", rule))
        stack.enter_context(patch.object(algebra, "meaning_of", meaning))
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
