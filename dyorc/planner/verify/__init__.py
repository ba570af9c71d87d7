"""Proves that plans compute what their programs compute: structure, random elements of a finite field, and formulas."""

from dyorc.planner.verify.report import Finding, FindingKind, Report, Tier, TierRun
from dyorc.planner.verify.verify import ALL_TIERS, mark_proved, verify, verify_inference

__all__ = ["ALL_TIERS", "Finding", "FindingKind", "Report", "Tier", "TierRun", "mark_proved", "verify", "verify_inference"]
