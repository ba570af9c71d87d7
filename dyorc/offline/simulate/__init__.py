"""Simulates plans on clusters: how long a step takes, what each device and channel does when, and how much memory it needs."""

from dyorc.offline.simulate.chrome import to_chrome_trace
from dyorc.offline.simulate.simulate import simulate
from dyorc.offline.simulate.simulation import Event, Simulation, check_memory

__all__ = ["Event", "Simulation", "check_memory", "simulate", "to_chrome_trace"]
