"""AdamA (ECAI 2023): Adam whose averages take in each microbatch's gradient at once, so that no gradient is kept."""

from dyorc.planner.passes.adama.adama_optimizer import AdamA
from dyorc.planner.passes.adama.adama_program import accumulate_microbatches, with_adama

__all__ = ["AdamA", "accumulate_microbatches", "with_adama"]
