# pyright: basic
# Ray ships no complete types.
"""Connects a forked replica to Ray, for programs that use Ray themselves: the process is not one of Ray's workers."""

import os

import ray

from dyorc.telemetry import logs

ADDRESS = "RAY_ADDRESS"
"""The variable by which a replica's process finds Ray; missing if it was forked before Ray was up."""


def connect() -> None:
    """Connects, once."""
    if ADDRESS in os.environ and not ray.is_initialized():
        ray.init(address=os.environ[ADDRESS], log_to_driver=False, configure_logging=False)
        logs.adopt_ray()
