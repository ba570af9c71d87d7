"""Joint optimisation: operations are fused and tied together, placed and scheduled, and each machine's way out is divided among
its receivers. Every operation runs whole, on one device.
"""

from dyorc.planner.planners.joint.plan import joint

__all__ = ["joint"]
