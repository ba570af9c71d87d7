"""Tensor programs: one graph of a whole training step on one device, or of a model that answers."""

from dyorc.planner.program.axes import Axes, axes_of
from dyorc.planner.program.capture import capture, capture_inference, recapture_inference
from dyorc.planner.program.evaluate import evaluate, sources_of, state_of
from dyorc.planner.program.example import Example
from dyorc.planner.program.flat_module import eager
from dyorc.planner.program.graph import Argument, Node, TensorProgram, Value, ValueKind, ValueRef
from dyorc.planner.program.layers import number_layers, repeat_layers
from dyorc.planner.program.strategies import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard, Strategy, strategies_of
from dyorc.planner.program.update import with_update

__all__ = [
    "PARTIAL",
    "REPLICATE",
    "Argument",
    "Axes",
    "Example",
    "Node",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "Strategy",
    "TensorProgram",
    "Value",
    "ValueKind",
    "ValueRef",
    "axes_of",
    "capture",
    "capture_inference",
    "eager",
    "evaluate",
    "number_layers",
    "recapture_inference",
    "repeat_layers",
    "sources_of",
    "state_of",
    "strategies_of",
    "with_update",
]
