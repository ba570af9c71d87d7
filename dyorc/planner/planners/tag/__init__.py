"""TAG: operations in groups, each group on some machines, replicated or spread over their devices; found by a tree search.

    groups.py     which operations belong together
    actions.py    what can be decided about a group, and where its operations run then
    realise.py    the plan of such decisions
    duplicate.py  which operations compute the whole batch on every device instead of summing gradients
    moves.py      how long values take from mesh to mesh
    stretches.py  operations that run without a movement between them
    estimate.py   how long a step takes, joined from stretches
    search.py     the tree search over decisions
    start.py      what its rewards are relative to
    features.py   what the network sees of a search
    network.py    the network, which says what is promising
    prior.py      its weights, and the search's question to it
    training.py   how it learns, on clusters of topologies.py
    plan.py       the planner

Source: TAG (TPDS'23).
"""
