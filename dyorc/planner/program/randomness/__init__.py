"""Random numbers that any split draws as one device draws them: functions of the step, the draw, and the element's position.

philox.py           the operator that programs have
distributions.py    torch's random operations, computed from what it draws
nodes.py            these operators in programs
counter_based.py    the mode that puts these in the place of torch's
"""

from dyorc.planner.program.randomness.counter_based import CounterBased, UncountableError, WithoutRandomness, arguments_of, draws

__all__ = ["CounterBased", "UncountableError", "WithoutRandomness", "arguments_of", "draws"]
