"""Decides how many replicas of each program are warm, parked or cold: forecast, demand, policy. No I/O, no clock."""
