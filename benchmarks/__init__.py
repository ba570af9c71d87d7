"""Measures DyOrc, alone and beside its peers. Run from the repository; README.md says what is where."""
