"""Random workflows, run by DyOrc with a guess at every decision, and by plain Python: both have to come to the same bits.

`grammar` writes a workflow as source code, `plain` runs that source with a few functions in the place of `dyorc`, `engines` and
`served` run it by DyOrc, `comparison` says what differs, and `shrinking` makes a case small that does. `python -m
tests.random_workflows` does all of it.
"""
