"""Modulo scheduling: what repeats is scheduled once, so that the next repetition begins one period later and all fit together.

Compilers pipeline loops this way. Here the loop is over microbatches (Tessel), or over the steps of several jobs (Crossover):
`modulo_blocks.py` says what is to be scheduled, `period_search.py` finds the shortest period, `timeline.py` unrolls it to any
number of repetitions, and `warm_up.py` schedules both ends.
"""
