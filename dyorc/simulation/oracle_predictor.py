"""The oracle: knows the outcome of a decision before its value is computed."""

from dyorc.authoring.decisions import Decision
from dyorc.core.arrays import apply_views, as_value
from dyorc.engine.model.futures import Argument, Future, FutureState, Outcome
from dyorc.engine.model.program_call import Call
from dyorc.errors import DyOrcError
from dyorc.simulation.plain import as_operand, evaluate
from dyorc.simulation.value_draws import Value, value_of


class OraclePredictor:
    """Predicts outcomes in simulations, where the output of a call follows from its inputs.

    Stateless, so it can serve any number of engines. Cost: one evaluation of each pending call that the decision depends on.
    """

    def outcome(self, decision: Decision) -> tuple[Outcome] | None:
        """Returns the outcome of `decision` in a tuple, since it may be None; None if there will be none, or a failure."""
        ref = decision.ref
        value = self.value(ref.future)
        if value is None:
            return None
        array = apply_views(value, ref.views) if ref.views else value  # pyright: ignore[reportArgumentType]
        try:
            return (decision.decide(as_value(array)),)
        except DyOrcError:
            return None

    def value(self, future: Future) -> Value | None:
        """Returns what a future holds, or will hold; None if that cannot be known.

        Only futures of one tensor are supported: simulated programs and workflows return one.
        """
        if future.state is FutureState.FAILED:
            return None
        if future.is_at_hand:
            return as_operand(future.arrays[0])
        producer = future.producer
        if producer is None:
            return None
        operands: list[Value] = []
        for argument in producer.arguments:
            operand = self._operand(argument)
            if operand is None:
                return None
            operands.append(operand)
        if isinstance(producer, Call):
            return value_of(producer.callee, operands)
        return evaluate(producer.callee, operands, producer.statics).answer

    def _operand(self, argument: Argument) -> Value | None:
        value = self.value(argument.future)
        if value is None or not argument.views:
            return value
        return as_operand(apply_views(value, argument.views))  # pyright: ignore[reportArgumentType]
