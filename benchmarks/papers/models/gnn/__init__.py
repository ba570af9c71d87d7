"""Graph networks in four stages (NGra, arXiv 1810.08403): scatter to edges, apply there, gather at vertices, apply there."""

from benchmarks.papers.models.gnn.advised import Tuned, advised, fits, tuned
from benchmarks.papers.models.gnn.graph import Graph, Grid, grid_graph, random_graph, rmat
from benchmarks.papers.models.gnn.layers import Gat, GatedGcn, Gcn, GgNn, SagaLayer, Sage
from benchmarks.papers.models.gnn.profile import Advice, Order, Profile, Stage, profile, whole_bytes
from benchmarks.papers.models.gnn.ring import on_ring
from benchmarks.papers.models.gnn.streaming import Streaming, num_chunks_for, streamed, working_set_bytes
from benchmarks.papers.models.gnn.whole import fused, sums_first, unhoisted, whole

__all__ = [
    "Advice",
    "Gat",
    "GatedGcn",
    "Gcn",
    "GgNn",
    "Graph",
    "Grid",
    "Order",
    "Profile",
    "SagaLayer",
    "Sage",
    "Stage",
    "Streaming",
    "Tuned",
    "advised",
    "fits",
    "fused",
    "grid_graph",
    "num_chunks_for",
    "on_ring",
    "profile",
    "random_graph",
    "rmat",
    "streamed",
    "sums_first",
    "tuned",
    "unhoisted",
    "whole",
    "whole_bytes",
    "working_set_bytes",
]
