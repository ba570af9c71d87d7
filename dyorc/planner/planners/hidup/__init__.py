"""HiDup (SoCC'22): two interleaved microbatches, so that one communicates while the other computes.

halves.py             what is cut in two, and what is computed once
items.py              the program as the search goes through it
microbatch_costs.py   what computing and communicating one microbatch costs
clock.py              the costs (psi, phi) of a prefix, and when one is never behind another
backward_costs.py     what the forward pass makes the backward pass communicate
pareto_search.py      the Pareto dynamic program
interleaved_plan.py   the plan: its steps interleave the microbatches; then the optimizer
plan.py               the planner
"""

from dyorc.planner.planners.hidup.plan import Duplex, hidup

__all__ = ["Duplex", "hidup"]
