"""HAP: distributed programs synthesized for clusters whose devices differ, with the best share for each.

`problem.py` says what is to be chosen and what it costs, `search_moves.py` brings that into an order, `frontier.py` and
`a_star.py` search, `synthesized_plan.py` makes a plan of what was found, `ratios.py` finds the shares, and `hap.py` lets
program and shares take turns.
"""
