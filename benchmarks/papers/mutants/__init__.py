"""Correct plans with one fault each: what a verifier must find.

Fourteen are the bugs of TrainVerify's table (SOSP'25), as changes of our plans. Each changes the first place where it can.
"""

from benchmarks.papers.mutants.outcomes import MUTATIONS, NUM_PUBLISHED, Outcome, outcomes

__all__ = ["MUTATIONS", "NUM_PUBLISHED", "Outcome", "outcomes"]
