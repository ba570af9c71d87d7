"""The whole server in one process of the operating system, under virtual time and one seed: the code of gateways, orchestrators,
leases, links, store and jobs is the real one, and the clock, the threads, the network and the faults are the seed's.

    python -m tests.whole_server --seeds 1000
    python -m tests.whole_server --seed 17
    python -m tests.whole_server --mutants

`world` runs virtual threads one at a time, `patches` puts them under Python's own modules, `virtual_loop` and `network` are
the event loop and what it reaches; `servers`, `clients`, `faults` and `checks` make a run of them. docs/testing/simulation.md
says what is simulated and what is not.
"""
