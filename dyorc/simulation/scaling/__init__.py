"""Traces replayed while a policy scales the programs: what misses its limit, and what the replicas cost."""
