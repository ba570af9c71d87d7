"""Writes docs/planners.md: what the planners are, and each paper's table.

    python -m benchmarks.papers.page FOLDER docs/planners.md

FOLDER holds the tables that `python -m benchmarks.papers all --output FOLDER` wrote, and what `make equality` and
`make bench-planner-peers` wrote. The pictures of the tables are written to img/planners next to the page.
"""

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.papers import REPRODUCIBLE
from benchmarks.papers.markdown import to_markdown
from benchmarks.papers.peers import peers_section
from benchmarks.papers.picture import draw_table
from benchmarks.papers.summary import summary_of
from benchmarks.papers.table import Table, table_from_json
from dyorc.planner.cluster import cluster_file
from dyorc.planner.planners import PLANNERS

_ABOUT = """# Planners

<!-- Written by `python -m benchmarks.papers.page`; change that file, not this one. -->

[Plans](concepts/plans.md) explains in two minutes what this is; here is every planner, and what its paper published, row by row.

A model that trains on one device and a cluster go in; a plan comes out that says which rank computes which piece of each
operation, and what is communicated when. The model is compared with the graph that was captured from it, the plan is proved to
compute what that graph computes, and what real ranks compute is compared with the model.

These systems are built in, each from its paper. The table counts what was published of them and comes out here, or does not;
[below](#what-papers-published-and-what-comes-out-here) is every single row. Figures that our costs are fitted to, and references
of our own, are counted apart: they may agree, but nothing that is published is equal by them.

{summary}

## How to use it

    pip install 'dyorc[planner]'

    dyorc cluster measure --ranks 2 -o cluster.toml                       # this machine; or write a file
    dyorc plan model.py:make_model --cluster cluster.toml -o plan.json    # the quickest of all planners, or --planner NAME
    dyorc plan show plan.json --cluster cluster.toml --picture plan.svg
    dyorc plan verify plan.json
    dyorc plan run plan.json
    dyorc plan model.py:make_model --cluster cluster.toml --planner parameter_server --channels auto -o plan.json
    dyorc plan network plan.json --cluster cluster.toml --format ovs    # its limits, as commands for the machines
    dyorc plan merge plan.json other.json --cluster cluster.toml -o merged.json    # two trainings on the same devices, in turns
    dyorc plan run merged.json
    dyorc plan fuse plan.json --cluster cluster.toml -o fused.json        # reductions, with what is computed around them

![A plan: what two ranks compute and communicate over time, their memory, and what they hold](img/plan.png)

`make_model` returns a module whose call returns its loss, and example inputs for it. A model that answers is planned with
`--inference`, to be [served](how-to/serving-by-plan.md). The loss may also be what a dictionary or an object holds as `loss`, or
the first element of a tuple. Inputs by name are a dictionary: `return module, inputs, {{"mask": mask}}`, or without `inputs`.

[Tied weights are one parameter](decisions/0079-what-a-program-holds.md), with the sum of their gradients. One that gets no
gradient is frozen, and a warning names it. Tensors that are neither parameters nor buffers are constants; what a step changes
must be a buffer. Refused, with the line of the module: shapes and Python branches that depend on data, complex and sparse
tensors, inputs that are changed in place.

The same in Python:

    from dyorc.planner.cluster import load_cluster
    from dyorc.planner.models import gpt
    from dyorc.planner.planners.auto import plan
    from dyorc.planner.program import capture
    from dyorc.planner.simulate import simulate
    from dyorc.planner.verify import verify

    program = capture(*gpt(layers=2))         # forward and backward as one graph
    cluster = load_cluster("cluster.toml")
    found = plan(program, cluster, planner="hap")
    assert verify(program, found).is_proved
    print(simulate(found, program, cluster).total_s)

and to run it, and read what ranks computed (`if __name__ == "__main__":`, since ranks are processes of their own):

    from dyorc.planner.program import Example, sources_of
    from dyorc.planner.reference import compare_with_module, judge_run
    from dyorc.planner.runtime import run

    module, inputs = gpt(layers=2)
    print(compare_with_module(program, module, Example.of(inputs)))    # the module beside what was captured
    sources = sources_of(program, module, inputs)
    ran = run(found, sources, program=program)
    print(ran.results[program.loss], ran.results[program.gradients["tokens.weight"]])
    print(judge_run(program, ran.results, module, Example.of(inputs), sources))

Inputs are numbered `input_0`, `input_1`, ... in the order of the arguments, those by name in the order of the alphabet. A module
with dropout draws what its plans draw inside of `dyorc.planner.program.randomness.CounterBased(step)`.

**Three checks.** `dyorc plan` compares the module with its captured program (float64, three sets of weights and inputs, loss and
every gradient and buffer, or every answer), and captures it again after a call; `--no-compare` skips that, and the plan says so
([decision 81](decisions/0081-programs-beside-their-modules.md)). The proof is of program and plan, for all inputs; it rests on
what operations mean, which `make operators` compares with torch's own samples. `dyorc plan run` compares what ranks computed,
in the plan's own types, and ends with 1 if no rounding explains the difference. `make zoo` does all three for
[models of other libraries](testing/zoo.md).

Planners: {planners}.

The step of an optimizer is planned, too, if it is named: `model.py:make_model+adam` (or `sgd`, `momentum`, `adama`). A number
behind it is that of microbatches, each like the example inputs: `+adam4` averages the gradients of four, `+adama4` takes each
into Adam's averages at once and frees it (AdamA: less memory, and not quite Adam). What a module does only after some calls, such
as a counter that it asks, is not seen. `dyorc plan fuse` then rewrites a plan as CoCoNeT does, where the simulator
finds it quicker, or with `--measure` real ranks: the optimizer runs on slices inside the ring that reduces gradients, and
products of matrices are computed slice by slice while their sum goes round. Its result is a plan like any other, and is proved.

## A cluster file

{cluster_file}

## How it works

1. **Program.** AOTAutograd captures forward, loss and backward as one graph of about forty kinds of operations.
2. **Strategies.** A rule for each kind, in the manner of an einsum, says how it runs on pieces: `Replicate`, `Shard(dim)` or
   `Partial` for each input and output. Each is checked against torch on random pieces. An operation without a rule stays whole.
   Dropout and other random numbers are functions of the step and of the place in the whole tensor, so that any split draws what
   one device draws. `with CounterBased(step): module(*inputs)` draws the same in plain PyTorch.
3. **Plan.** Ranks form meshes with named axes; microbatches are an axis of time, cut by the same rules. A plan is one list of
   steps in an order that all ranks follow, so that none waits for one that waits for it.
4. **Proof.** A plan says of each tensor which piece of which value every rank holds. So each step is proved by itself.
5. **Run.** `torch.distributed` ranks, uneven shards included, with collectives beside computation.

**What is not a plan.** EvoMoE, NGra and the profiles of graph networks are libraries with reproductions. They make no plan, so
the proof does not see them. Tests hold each beside the plain computation of the same: chunks of a graph beside the whole graph,
experts on several ranks beside experts on one, a sparse gate beside a dense sum.

**How long a search takes.** `--deadline SECONDS` ends it with the best plan so far, within any planner; progress and the plan say
which planners were not finished or not tried. Ctrl-C does the same at once. Plans are proved, the quickest first: one that is not
proved is not taken, with a warning that names its planner, and the next one is. Ranks that do the same are planned and simulated
once, so that hundreds of equal devices take little longer than eight; `dyorc plan show` names them in one row.

**Channels.** With `--channels auto`, each message between two ranks goes the way that costs least by the cluster's figures:
`static` shared memory, which the receiver sets aside once, `dynamic`, which the sender takes when there is a message, `gloo` or
`grpc`. One of these names in place of `auto` allows only that, and gloo where it does not lead. Ranks compute with what came
where it lies; the proof includes that no place is filled again while what lies there is needed. Collectives stay with gloo.

{equality}{peers}## What papers published, and what comes out here

One section for each system. Every figure, table and claim that is known of it is a row: what is published, what comes out here,
the band within which ours counts as equal, and how the two relate. Bands are in `benchmarks/papers/bands.py`; no row compares
without one.

* *Equal*: a published figure, and ours is within the band. *Exact* is the same whole number or the same fact.
* *Same sign*: the same side wins, by another amount. Where only a side is published, the band says *sign alone*, and no more can
  come out.
* *Differs*: it does not come out. The row says by how much and, where that is known, why.
* *Not here*: it cannot be checked without the authors' hardware, data or code. The row says which.
* *Ours alone*: what we measured besides. Nothing is published to compare it with.

Two kinds of rows are counted apart, and are never equal; within their band they *agree*:

* *Fitted*: the figure is published, but our costs are calibrated on it, so that it cannot fail by much.
* *Own reference*: what ours is compared with was computed here: a formula, our simulator, or a plain computation of the same.

Where a paper shows several points of one thing, their *trend* is a row of its own, at the end of the section. It has to run the
same way (within 5 % it is flat), in the same order (Spearman's rank correlation of 0.8 or more) and about as far (its last value
over its first within 15 %). If it only runs less or more far, the sign is the same. Points within their bands do not help a
trend that runs the wrong way.

Nothing here has a GPU. Times of clusters are simulated, from the authors' own calibration where they published it. What runs on
real ranks runs on two shared cores. `python -m benchmarks.papers NAME` computes a table again, `--quick` a part of it in less
than a minute, and `python -m benchmarks.papers all --quick` a part of each in less than a quarter of an hour. A quick run has the
same bands and kinds as the full one. It names what it leaves out, and rows that it computes at another size are *not judged*.
Where a table was put together from rows of several runs, its section names the run of each row.

"""


def main() -> None:
    """Reads the tables, draws them beside the page, and writes it."""
    folder, target = map(Path, sys.argv[1:3])
    tables = tables_in(folder)
    pictures = target.parent / "img" / "planners"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = {
        table.name: f"img/planners/{table.name}.svg" for table in tables if draw_table(table, pictures / f"{table.name}.svg")
    }
    target.write_text(page_of(folder, tables, drawn))


def tables_in(folder: Path) -> list[Table]:
    """Reads the tables in a folder, in the order of the page."""
    return [table_from_json(path.read_text()) for name in REPRODUCIBLE if (path := folder / f"{name}.json").exists()]


def page_of(folder: Path, tables: Sequence[Table], pictures: Mapping[str, str]) -> str:
    """Returns the page.

    Args:
        folder: With what `make equality` and `make bench-planner-peers` did.
        tables: In the order of the sections.
        pictures: Where the page finds the picture of each table that has one, by the table's name.
    """
    about = _ABOUT.format(
        cluster_file=inspect.cleandoc(cluster_file.__doc__ or "").partition("\n\n")[2],
        planners=", ".join(f"`{name}`" for name in PLANNERS),
        equality=_equality(folder / "equality.json"),
        summary=summary_of(tables),
        peers=peers_section(folder / "peers.json"),
    )
    return about + to_markdown(tables, pictures).rstrip() + "\n"


def _equality(path: Path) -> str:
    """What `make equality` has found."""
    if not path.exists():
        return ""
    table = json.loads(path.read_text())
    lines = [
        "## Plans that compute what one device computes",
        "",
        f"`make equality` has proved {table['plans']} plans and run them on real ranks, in float64: {table['equal']} compute the",
        f"loss and all gradients of one device, with differences of {table['largest_error']:.1e} at most. {table['uneven']} have",
        f"uneven shares, in {table['with_empty']} some rank's share of something is empty. By model, equal / tried:",
        "",
    ]
    models = list(next(iter(table["planners"].values()))["models"])
    lines += ["| |" + "|".join(models) + "|largest error|", "|---|" + "--:|" * (len(models) + 1)]
    for name, row in table["planners"].items():
        lines.append(f"| {name} |" + "|".join(row["models"].values()) + f"|{row['largest_error']:.1e}|")
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    main()
