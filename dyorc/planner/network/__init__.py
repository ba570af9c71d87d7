"""What a plan's limits mean to real machines: queues, flow rules and routes, as text for Open vSwitch and for `tc`.

rules.py        limits as queues and routes of one machine, for any system
ovs.py, tc.py   these as commands, and commands as these again: tests check that both agree
"""

from dyorc.planner.network.ovs import ovs_rules, to_ovs
from dyorc.planner.network.rules import MachineRules, PolicyRoute, Queue, rules_of
from dyorc.planner.network.tc import tc_rules, to_tc

__all__ = ["MachineRules", "PolicyRoute", "Queue", "ovs_rules", "rules_of", "tc_rules", "to_ovs", "to_tc"]
