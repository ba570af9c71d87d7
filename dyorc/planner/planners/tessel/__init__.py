"""Tessel (HPCA'24): pipelines whose stages are placed in any way, with the schedule of least idle time.

`placement_shapes.py` has the paper's placements, `enumeration.py` its own search beside ours (`planners/modulo`),
`least_makespan.py` the search over all microbatches at once that both make unnecessary; `placements.py`, `passes.py` and
`plan.py` plan captured programs.
"""
