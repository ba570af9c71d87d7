"""Random numbers that any split draws as one device draws them: functions of the step, the draw, and the element's position.

philox.py           the operator that programs have, and which draw of the step a node is
distributions.py    torch's random operations, computed from what it draws
counter_based.py    the mode that replaces torch's operations by these
"""

from dyorc.planner.program.randomness.counter_based import CounterBased, UncountableError, WithoutRandomness, arguments_of, draws

__all__ = ["CounterBased", "UncountableError", "WithoutRandomness", "arguments_of", "draws"]
