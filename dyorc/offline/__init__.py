"""Plans how a tensor program that trains on one device is split over many, proves the plan equal, and runs it.

    program/    what is to be split: one graph of forward, backward and update, captured from a module
    cluster/    where it runs: devices, links, and what computing and communicating costs
    plan/       how it is split: which rank computes which piece of which operation, and what is communicated
    simulate/   how long a plan takes, and how much memory
    runtime/    runs a plan on ranks of torch.distributed
    verify/     proves that a plan computes what the program computes
    planners/   find plans

Nothing of this is needed to serve: the extra `planners` installs what it needs.
"""
