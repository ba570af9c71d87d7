"""TAG: operations in groups, each group on some machines, replicated or spread over their devices; found by a tree search.

    op_groups.py              which operations belong together
    group_actions.py          what can be decided about a group, and where its operations run then
    deployment_plan.py        the plan of such decisions
    duplicate.py              which operations compute the whole batch on every device instead of summing gradients
    redistribution_costs.py   how long values take from mesh to mesh
    stretches.py              operations that run without a movement between them
    estimate.py               how long a step takes, joined from stretches
    tree_search.py            the tree search over decisions
    search_baseline.py        what its rewards are relative to
    features.py               what the network sees of a search
    policy_network.py         the network, which says what is promising
    prior.py                  its weights, and the search's question to it
    policy_training.py        how it learns, on clusters of topologies.py
    plan.py                   the planner

Source: TAG (TPDS'23).
"""
