"""Writes docs/planners.md: what the planners are, and each paper's table.

    python -m dyorc.offline.reproduce.page FOLDER docs/planners.md

FOLDER holds the tables that `dyorc reproduce all --output FOLDER` wrote, and what `make equality` and `make bench-planner-peers`
did. The pictures of the tables are written to img/planners beside the page.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dyorc.offline.planners import PLANNERS
from dyorc.offline.reproduce import REPRODUCIBLE
from dyorc.offline.reproduce.peers import peers_section
from dyorc.offline.reproduce.picture import draw_table
from dyorc.offline.reproduce.table import Relation, Table, table_from_json, to_markdown

_ABOUT = """# Offline planners

<!-- Written by `python -m dyorc.offline.reproduce.page`; change that file, not this one. -->

A model that trains on one device and a cluster go in; a plan comes out that says which rank computes which piece of which
operation, and what is communicated when. The plan is proved to compute what the model computes, and runs on real ranks.

These systems are built in, each from its paper. The table counts what was published of them and comes out here, or does not;
[below](#what-papers-published-and-what-comes-out-here) is every single row.

{summary}

## How to use it

    pip install 'dyorc[planners]'

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
`--inference`, to be [served](serving-by-plan.md). The same in Python:

    from dyorc.offline.cluster import load_cluster
    from dyorc.offline.models import gpt
    from dyorc.offline.planners.auto import plan
    from dyorc.offline.program import capture
    from dyorc.offline.simulate import simulate
    from dyorc.offline.verify import verify

    program = capture(*gpt(layers=2))         # forward and backward as one graph
    cluster = load_cluster("cluster.toml")
    found = plan(program, cluster, planner="hap")
    assert verify(program, found).is_proved
    print(simulate(found, program, cluster).total_s)

Planners: {planners}.

The step of an optimizer is planned, too, if it is named: `model.py:make_model+adam` (or `sgd`, `momentum`, `adama`). A number
behind it is that of microbatches: `+adam4` adds the gradients of four up, `+adama4` takes each into Adam's averages at once and
frees it (AdamA: less memory, and not quite Adam). `dyorc plan fuse` then rewrites a plan as CoCoNeT does, where the simulator
finds it quicker, or with `--measure` real ranks: the optimizer runs on slices inside the ring that reduces gradients, and
products of matrices are computed slice by slice while their sum goes round. Its result is a plan like any other, and is proved.

## How it works

1. **Program.** AOTAutograd captures forward, loss and backward as one graph of about forty kinds of operations.
2. **Strategies.** A rule for each kind, in the manner of an einsum, says how it runs on pieces: `Replicate`, `Shard(dim)` or
   `Partial` for each input and output. Each is checked against torch on random pieces. An operation without a rule stays whole.
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
and how the two relate.

* *Equal*: the same fact, or the same number within the tolerance of the row. Whole numbers are exactly equal.
* *Same sign*: the same side wins, by another amount.
* *Differs*: it does not come out. The row says by how much and, where that is known, why.
* *Not here*: it cannot be checked without the authors' hardware, data or code. The row says which.
* *Ours alone*: what we measured besides. Nothing is published to compare it with.

Nothing here has a GPU. Times of clusters are simulated, from the authors' own calibration where they published it, and only
ratios are compared. What runs on real ranks runs on two shared cores. `dyorc reproduce NAME` computes a table again, `--quick`
a part of it in less than a minute, and `dyorc reproduce all --quick` a part of each in less than a quarter of an hour: it took
303 s on two cores. These tables were put together from rows of several runs of the same commands, so that the seconds they name
are not of one run: {put_together}.

"""

SYSTEMS: Mapping[str, str] = {
    "hap": "divides each operation among unlike devices, in shares as uneven as they are",
    "hidup": "runs two microbatches in turns, so that one communicates while the other computes",
    "tag": "searches for each group of operations where it goes, guided by a trained network",
    "superscaler": "keeps data dependencies under any split of operations; plans as constraints",
    "trainverify": "proves that a plan computes what its model does",
    "joint": "chooses the machines of operations together with the bandwidth between machines",
    "tessel": "finds the order of a pipeline's blocks with the least idle time",
    "coconet": "fuses collectives with the computation around them",
    "crossover": "lets one training communicate while another computes",
    "adama": "adds gradients up in the optimizer's averages, and frees them at once",
    "evomoe": "lets experts grow out of one, and a gate grow sparse",
    "ngra": "trains graph networks chunk by chunk, on graphs that do not fit",
    "gnn": "says which stage of a graph network takes longest, and what to do",
    "channels": "picks for each pair of devices how tensors go from one to the other",
}
"""What each does, in a few words."""

_PUT_TOGETHER = ("joint", "gnn", "ngra", "hap", "hidup")
"""The tables whose rows are of several runs, as renewing all takes hours. One that is renewed as a whole leaves the list."""


def main() -> None:
    """Reads the tables, draws them beside the page, and writes it."""
    folder, target = map(Path, sys.argv[1:3])
    tables = [table_from_json(path.read_text()) for name in REPRODUCIBLE if (path := folder / f"{name}.json").exists()]
    pictures = target.parent / "img" / "planners"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = {
        table.name: f"img/planners/{table.name}.svg" for table in tables if draw_table(table, pictures / f"{table.name}.svg")
    }
    about = _ABOUT.format(
        planners=", ".join(f"`{name}`" for name in PLANNERS),
        equality=_equality(folder / "equality.json"),
        summary=_summary(tables),
        peers=peers_section(folder / "peers.json"),
        put_together=", ".join(_PUT_TOGETHER[:-1]) + f" and {_PUT_TOGETHER[-1]}",
    )
    target.write_text(about + to_markdown(tables, drawn).rstrip() + "\n")


def _summary(tables: Sequence[Table]) -> str:
    """A row for each system: what it does, and how many of its rows come out."""
    shown = [relation for relation in Relation if relation is not Relation.FAILED]
    names = {Relation.NOT_HERE: "not here"}
    lines = ["| system | what it does | rows |" + "".join(f" {names.get(each, each)} |" for each in shown) + " command |"]
    lines.append("|---|---|--:|" + "--:|" * len(shown) + "---|")
    for table in tables:
        counts = "".join(f" {table.count(relation) or ''} |" for relation in shown)
        title = f"[{table.title.split(' (')[0]}](#{_anchor(table.title)})"
        lines.append(f"| {title} | {SYSTEMS[table.name]} | {len(table.rows)} |{counts} `dyorc reproduce {table.name}` |")
    totals = "".join(f" {sum(table.count(relation) for table in tables)} |" for relation in shown)
    lines.append(f"| all | | {sum(len(table.rows) for table in tables)} |{totals} `dyorc reproduce all` |")
    return "\n".join(lines)


def _anchor(title: str) -> str:
    """How a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _equality(path: Path) -> str:
    """What `make equality` has found."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    lines = [
        "## Plans that compute what one device computes",
        "",
        f"`make equality` has proved {found['plans']} plans and run them on real ranks, in float64: {found['equal']} compute the",
        f"loss and all gradients of one device, with differences of {found['largest_error']:.1e} at most. {found['uneven']} have",
        f"uneven shares, in {found['with_empty']} some rank's share of something is empty. By model, equal / tried:",
        "",
    ]
    models = list(next(iter(found["planners"].values()))["models"])
    lines += ["| |" + "|".join(models) + "|largest error|", "|---|" + "--:|" * (len(models) + 1)]
    for name, row in found["planners"].items():
        lines.append(f"| {name} |" + "|".join(row["models"].values()) + f"|{row['largest_error']:.1e}|")
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    main()
