"""Tessel (HPCA'24): pipelines whose stages are placed in any way, with the schedule of least idle time.

`placements.py` places the stages of a program, `passes.py` makes blocks of them, which `planners/modulo` schedules, `plan.py` is
the planner, and `export.py` writes a schedule as torch's table. The paper's own search is `benchmarks/papers/tessel_search.py`.
"""
