"""Proves that plans compute what their programs compute: structure, random elements of a finite field, and formulas."""

from dyorc.offline.verify.inference import proved, verify_inference
from dyorc.offline.verify.report import Finding, FindingKind, Report, Tier, TierRun
from dyorc.offline.verify.verify import ALL_TIERS, verify

__all__ = ["ALL_TIERS", "Finding", "FindingKind", "Report", "Tier", "TierRun", "proved", "verify", "verify_inference"]
