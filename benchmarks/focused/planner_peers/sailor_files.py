"""Writes what Sailor's planner reads: how long each layer takes on each kind of device, its memory, and the network.

Sailor measures layers on GPUs. Here they come from the costs that our planners and the simulator use, so that all planners know
the same of model and cluster. Embedding and head are whole on each rank of a tensor-parallel group, as in the plans that
`stages.py` makes of the answer.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Algorithm, CollectiveKind
from dyorc.planner.planners.baselines.follow import choices_of
from dyorc.planner.planners.baselines.pipeline import stages_with
from dyorc.planner.program import Node, TensorProgram
from dyorc.planner.program.costs import costs_of
from dyorc.planner.program.graph import Phase

FAST, SLOW = "A100-40", "V100-16"
"""Names of devices whose memory Sailor knows; how fast they are is in the profile."""
_ZONE = "us-central1-a"
_TENSOR_PARALLEL = (1, 2, 4)
"""The degrees that Sailor tries."""
_ALL_REDUCES = 2
"""Of each transformer layer with tensor parallel, in each direction: after attention and after the feed-forward part."""


def layer_of_parameters(program: TensorProgram) -> dict[str, int]:
    """The layer of each parameter, as Sailor counts: the embedding, the transformer layers, and the head."""
    layers: dict[str, int] = {}
    num_layers = 1 + max(int(name.split(".")[1]) for name in program.parameters if name.startswith("layers."))
    for name in program.parameters:
        if name.startswith("layers."):
            layers[name] = 1 + int(name.split(".")[1])
        else:
            layers[name] = 0 if name.split(".")[0] in ("tokens", "positions") else num_layers + 1
    return layers


def kinds_of(cluster: Cluster) -> dict[str, list[int]]:
    """The ranks of each kind of device: the fastest, and all slower ones."""
    fastest = max(device.flops_per_s for device in cluster.devices)
    fast = [rank for rank, device in enumerate(cluster.devices) if device.flops_per_s == fastest]
    slow = [rank for rank in range(cluster.num_ranks) if rank not in fast]
    return {FAST: fast} | ({SLOW: slow} if slow else {})


def write(program: TensorProgram, cluster: Cluster, folder: Path, library: Path) -> dict[str, Any]:
    """Writes all files to a folder, and returns the question."""
    kinds, layers = kinds_of(cluster), _Layers(program)
    for kind, ranks in kinds.items():
        _write(folder / kind / "profile.json", layers.profile(cluster, ranks[0]))
    rate = cluster.slowest_link(range(cluster.num_ranks))[0]
    each = {str(degree): [[0.0, 0.0, rate / 1e9], rate] for degree in _TENSOR_PARALLEL}
    network = {_ZONE: {source: {str(n): {_ZONE: dict.fromkeys(kinds, each)} for n in _TENSOR_PARALLEL} for source in kinds}}
    quotas = {kind: {_ZONE: 4 * cluster.num_ranks} for kind in kinds}  # it tries only degrees well below them
    training = {"model": "model", "optimizer": "Adam", "global_batch_size": layers.batch, "num_layers": layers.count - 2}
    content = {
        "network": network,
        "training": training,
        "memory": {"model": layers.memory()},
        "prices": {_ZONE: {_ZONE: 0.0}},
        "quotas": quotas,
    }
    files = {name: str(_write(folder / f"{name}.json", table)) for name, table in content.items()}
    return {
        "library": str(library),
        "zone": _ZONE,
        "devices": {kind: len(ranks) for kind, ranks in kinds.items()},
        "files": files | {"profiles": f"{folder}/"},
    }


class _Layers:
    """The nodes of each layer, and what they cost."""

    def __init__(self, program: TensorProgram) -> None:
        choices = choices_of(program)
        of_parameter = layer_of_parameters(program)
        self.count = 1 + max(of_parameter.values())
        self.batch = program.values[program.inputs[0]].shape[0]
        self._program = program
        self._of_parameter = of_parameter
        staged = stages_with(choices, of_parameter, [(layer,) for layer in range(self.count)])
        self._nodes: list[list[Node]] = [[] for _ in range(self.count)]
        for node in program.nodes:
            self._nodes[staged.of_node[node.name][0]].append(node)

    def profile(self, cluster: Cluster, rank: int) -> dict[str, Any]:
        """Seconds forward, backward and of the update, by samples in a microbatch, tensor-parallel degree and layer."""
        samples = [n for n in range(1, self.batch + 1) if self.batch % n == 0]
        return {
            str(n): {
                str(degree): {str(layer): self._times(cluster, rank, layer, n, degree) for layer in range(self.count)}
                for degree in _TENSOR_PARALLEL
            }
            for n in samples
        }

    def _times(self, cluster: Cluster, rank: int, layer: int, samples: int, degree: int) -> list[float]:
        parts = self._parts(layer, degree)
        costs, share = costs_of(self._program), samples / self.batch / parts
        forward_s, backward_s = (
            sum(cluster.compute_s(costs[node.name], rank, share) for node in self._nodes[layer] if node.phase is phase)
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        )
        if parts > 1:
            num_bytes = self._output_floats(layer) * samples * 4
            ranks = tuple(range(min(degree, cluster.num_ranks)))
            one_s = cluster.collective_s(CollectiveKind.ALL_REDUCE, Algorithm.PADDED, ranks, [num_bytes] * len(ranks))
            forward_s, backward_s = forward_s + _ALL_REDUCES * one_s, backward_s + _ALL_REDUCES * one_s
        return [forward_s, backward_s, 0.0]

    def memory(self) -> dict[str, Any]:
        """By degree and layer: parameters, what is kept of a sample for the backward pass, and what goes to the next layer."""
        return {
            str(degree): {
                str(layer): {
                    "params_floats": self._size(self._parameters(layer)) // self._parts(layer, degree),
                    "act_mem_floats": self._size(self._made(layer)) // self.batch // self._parts(layer, degree),
                    "act_output_floats": self._output_floats(layer),
                }
                for layer in range(self.count)
            }
            for degree in _TENSOR_PARALLEL
        }

    def _parts(self, layer: int, degree: int) -> int:
        return degree if 0 < layer < self.count - 1 else 1

    def _output_floats(self, layer: int) -> int:
        """Of one sample: the largest tensor that the next layer reads."""
        following = {
            name for other in self._nodes[layer + 1 :] for node in other if node.phase is Phase.FORWARD for name in node.inputs
        }
        return max((self._size([name]) for name in self._made(layer) if name in following), default=0) // self.batch

    def _made(self, layer: int) -> list[str]:
        return [name for node in self._nodes[layer] if node.phase is Phase.FORWARD for name in node.outputs if name]

    def _parameters(self, layer: int) -> list[str]:
        return [name for name, parameter_layer in self._of_parameter.items() if parameter_layer == layer]

    def _size(self, names: Sequence[str]) -> int:
        values = self._program.values
        return sum(values[name].num_bytes for name in names) // 4


def _write(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
