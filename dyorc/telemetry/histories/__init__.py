"""Histories of requests: what their workflows did, step by step, written to files that `dyorc replay` reads."""
