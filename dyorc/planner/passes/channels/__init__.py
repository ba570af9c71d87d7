"""Chooses how each message of a plan gets from one rank to another: by shared memory, gloo or gRPC.

    choose.py     the cheapest way of each edge, by the cluster's costs
    static_slots.py      which static messages lie in the same memory, one after another

Source: RPC Considered Harmful (arXiv 1805.08430; EuroSys'19): static placement where shapes are known, dynamic allocation where
they are not.
"""

from dyorc.planner.passes.channels.choose import with_channels

__all__ = ["with_channels"]
