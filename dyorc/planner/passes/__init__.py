"""Passes: what changes a program or a plan and leaves what it computes as it says."""
