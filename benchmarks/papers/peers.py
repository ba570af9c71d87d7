"""What `make bench-planner-peers` found, as a part of the page: the plans of other planners, priced in our simulator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAMES = ("dp_even", "dp_proportional", "zero", "megatron", "hap", "auto", "autoparallel", "autoparallel-sharded", "sailor")

_ABOUT = """## Beside other planners

`make bench-planner-peers` asks other planners about the same models and clusters, each in a process of its own, and makes plans
of what they choose. The verifier proves these plans, and the simulator prices them like ours: only what planners decide differs.
The devices reach 300 Tflop/s and 2.4 TB/s, an operation takes at least 7 µs more, and the network carries 50 GB/s; slow devices
are half as fast. Our planners and Sailor search with the costs that the simulator uses, autoparallel with its own model of
collectives, and without counting that communication hides behind computation: that favours ours.

* **autoparallel** (meta-pytorch/autoparallel{autoparallel}, torch {torch}) traces the model and solves an integer program for the
  placements of all nodes, on a mesh with one axis. Its cost model is told the speeds above. Nodes of the two graphs are aligned;
  what has no counterpart, such as the parts of an activation that one of the two takes apart, follows its inputs. `-sharded` is
  with its limit on the memory of parameters.{alike}
* **Sailor** (eth-easl/sailor{sailor}) chooses stages, data- and tensor-parallel degrees, and which kinds of devices a stage
  gets. Its profiles of layers are written from the costs that our simulator uses, instead of being measured on GPUs. Its own
  choice is priced, not the best of its list. A stage whose replicas have different tensor-parallel degrees cannot be expressed
  here; where it chooses one, the table has no figure. Pipelines of Llama were priced when our stages sent the
  normalized input of the next layer beside its input: they are dearer in the table than they are now.

Milliseconds of a step in our simulator, and below them the seconds of processor time that planning took.{proved}

"""

_NOT_RUN = """
Not run: autoparallel on devices of two kinds (it knows one) and on meshes with two axes; Sailor on an MLP (it plans
transformers), its training framework, and the planners that its repository wraps: AMP, Metis, Galvatron, Varuna, Piper,
FlashFlex, DTFM, Aceso and Atlas, whose profiles are of GPUs, for models of their own. None of these plans ran on GPUs.

"""


def peers_section(path: Path) -> str:
    """Returns the section, or nothing if there is no result."""
    if not path.exists():
        return ""
    document = json.loads(path.read_text())
    commits = {name: f" at {commit[:7]}" for name, commit in document["commits"].items()}
    about = _ABOUT.format(
        torch=document["torch"],
        autoparallel=commits.get("autoparallel", ""),
        sailor=commits.get("sailor", ""),
        alike=_alike(document["cases"]),
        proved=" All plans are proved." if all(row.get("is_proved", True) for row in _rows(document["cases"])) else "",
    )
    return about + _table(document["cases"]) + _NOT_RUN


def _rows(cases: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for case in cases for row in case["planners"].values()]


def _alike(cases: list[Mapping[str, Any]]) -> str:
    rows = [row for row in _rows(cases) if "products" in row]
    if not rows:
        return ""
    products, nodes = ([sum(row[key] for row in rows) for key in (f"{kind}_alike", kind)] for kind in ("products", "nodes"))
    return (
        f" Of all matrix products, {products[0] / products[1]:.0%} read their inputs as it chose,"
        f" of all nodes that compute {nodes[0] / nodes[1]:.0%}."
    )


def _table(cases: list[Mapping[str, Any]]) -> str:
    names = [name for name in _NAMES if any(name in case["planners"] for case in cases)]
    lines = ["| |" + "|".join(names) + "|", "|---|" + "--:|" * len(names)]
    for case in cases:
        best_s = min(row["step_s"] for row in case["planners"].values() if "step_s" in row)
        cells = [_cell(case["planners"].get(name, {}), best_s) for name in names]
        lines.append(f"| {case['case']} |" + "|".join(cells) + "|")
    return "\n".join(lines) + "\n"


def _cell(row: Mapping[str, Any], best_s: float) -> str:
    """The step, bold where no planner is better, and how long planning took."""
    if "step_s" not in row:
        return "-"
    step = f"{row['step_s'] * 1e3:.2f}"
    marked = f"**{step}**" if row["step_s"] <= best_s * 1.0005 else step
    unproved = "" if row["is_proved"] else " not proved"
    return f"{marked}{unproved}<br>{row['search_cpu_s']:.1f} s"
