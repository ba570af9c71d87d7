"""Clusters: devices and links, what computing and communicating costs on them, published and measured figures."""

from dyorc.planner.cluster.cluster import Cluster, Contention, Device, Interface, Link
from dyorc.planner.cluster.cluster_file import cluster_from_toml, cluster_to_toml, load_cluster, write_cluster
from dyorc.planner.cluster.collectives import ChannelCost, CollectiveCost, CostLine, driving_bytes, fitted_line
from dyorc.planner.cluster.published import published, published_names, tag_cluster
from dyorc.planner.cluster.small import even_cluster, links_between, one_machine, uneven_cluster

__all__ = [
    "ChannelCost",
    "Cluster",
    "CollectiveCost",
    "Contention",
    "CostLine",
    "Device",
    "Interface",
    "Link",
    "cluster_from_toml",
    "cluster_to_toml",
    "driving_bytes",
    "even_cluster",
    "fitted_line",
    "links_between",
    "load_cluster",
    "one_machine",
    "published",
    "published_names",
    "tag_cluster",
    "uneven_cluster",
    "write_cluster",
]
