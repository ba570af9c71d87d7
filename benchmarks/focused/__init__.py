"""Benchmarks that ask one question each. Every one is a target of the Makefile."""
