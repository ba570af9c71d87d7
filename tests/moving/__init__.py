"""Runs the code of docs/compare: the same small pipeline in other servers, and in DyOrc."""
