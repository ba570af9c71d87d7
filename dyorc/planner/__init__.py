"""The planner: splits a model over several devices, proves the split right, and predicts how long it takes.

`dyorc plan MODULE:MAKE --cluster cluster.toml` does this from a shell (docs/planners.md). In Python it takes five steps:

    from dyorc.planner.cluster import load_cluster
    from dyorc.planner.planners.auto import plan
    from dyorc.planner.program import capture, sources_of
    from dyorc.planner.runtime import run
    from dyorc.planner.simulate import simulate
    from dyorc.planner.verify import verify

    program = capture(module, inputs)              # 1. capture: forward, loss and backward as one graph
    cluster = load_cluster("cluster.toml")
    best = plan(program, cluster)                  # 2. plan: the quickest plan of all planners
    assert verify(program, best).is_proved         # 3. verify: it computes what the module computes
    simulate(best, program, cluster).total_s       # 4. simulate: the seconds of a step, and the memory of each device
    sources = sources_of(program, module, inputs)
    run(best, sources, program=program).results    # 5. run: one process for each rank

Its packages, from the model to the ranks:

    program/    the model as one graph of tensor operations, captured from a module, and how each operation can be split
    cluster/    devices and links, and what computation and communication cost on them
    plan/       a plan: which rank computes which piece of each operation, and what ranks send; plan files
    planners/   search for plans: one for each published planner, and `auto`, which runs them all
    passes/     change a plan without changing its results: other channels, fused and overlapped communication
    verify/     proves that a plan computes what its program computes
    reference/  compares a captured program and a plan's run with the module itself
    simulate/   predicts a plan's step time and memory
    runtime/    runs a plan on ranks of torch.distributed
    network/    limits of a plan's messages as rules for Open vSwitch and tc

Serving needs none of this. `pip install 'dyorc-core[planner]'` installs what it needs: torch, and for `planners/` solvers, too.
"""

from dyorc.system import extras

# Serving a plan needs torch alone; it has asked for it by then, and where it is missing here, a plan is wanted.
extras.require("torch", "dyorc.planner", installs="planner")
