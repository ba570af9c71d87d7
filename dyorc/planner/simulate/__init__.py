"""Simulates plans on clusters: how long a step takes, what each device and channel does when, and how much memory it needs."""

from dyorc.planner.simulate.chrome import to_chrome_trace
from dyorc.planner.simulate.discrete_events import simulate
from dyorc.planner.simulate.simulation import Event, Simulation, check_memory

__all__ = ["Event", "Simulation", "check_memory", "simulate", "to_chrome_trace"]
