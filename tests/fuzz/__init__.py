"""Fuzzing, with one target for Hypothesis and Atheris."""
