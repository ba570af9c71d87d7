"""HAP: distributed programs synthesized for clusters whose devices differ, with the best share for each.

`problem.py` says what is to be chosen and what it costs, `search_moves.py` brings that into an order, `frontier.py` searches,
`synthesized_plan.py` builds the plan of a solution, `ratios.py` finds the shares, and `hap.py` improves program and shares in
turn.
"""
