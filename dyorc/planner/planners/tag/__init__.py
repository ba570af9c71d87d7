"""TAG: operations in groups, each group on some machines, replicated or spread over their devices; found by a tree search.

    op_groups.py         which operations belong together
    group_actions.py     what can be decided about a group, and where its operations run then
    duplicate.py         which operations compute the whole batch on every device instead of summing gradients
    stretches.py         operations that run without a movement between them
    estimate.py          how long a step takes, joined from stretches and movements
    tree_search.py       the tree search over decisions, and what its rewards are relative to
    features.py          what the network sees of a search
    policy_network.py    the network, which says what is promising, and its weights
    policy_training.py   how it learns, on random clusters
    plan.py              the planner, and the plan of its decisions

Source: TAG (TPDS'23).
"""
