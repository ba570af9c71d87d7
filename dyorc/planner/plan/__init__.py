"""Distributed plans: meshes and layouts, the steps that ranks take, and how plans are built, written and read."""

from dyorc.planner.plan.build import PlanBuilder
from dyorc.planner.plan.layout import (
    Coordinate,
    Layout,
    Mesh,
    MeshAxis,
    Region,
    extents,
    narrowed,
    overlap,
    region_of,
    shares,
    starts,
    within,
)
from dyorc.planner.plan.network import Limit, MachinePair, Network
from dyorc.planner.plan.order import communicate_early
from dyorc.planner.plan.plan import Inference, Kernel, ModuleCheck, Overlap, Placed, Plan, Provenance, SearchEnd
from dyorc.planner.plan.samples import for_samples
from dyorc.planner.plan.steps import Algorithm, Apply, ChannelKind, Collective, CollectiveKind, Edge, Step, Transfer

__all__ = [
    "Algorithm",
    "Apply",
    "ChannelKind",
    "Collective",
    "CollectiveKind",
    "Coordinate",
    "Edge",
    "Inference",
    "Kernel",
    "Layout",
    "Limit",
    "MachinePair",
    "Mesh",
    "MeshAxis",
    "ModuleCheck",
    "Network",
    "Overlap",
    "Placed",
    "Plan",
    "PlanBuilder",
    "Provenance",
    "Region",
    "SearchEnd",
    "Step",
    "Transfer",
    "communicate_early",
    "extents",
    "for_samples",
    "narrowed",
    "overlap",
    "region_of",
    "shares",
    "starts",
    "within",
]
