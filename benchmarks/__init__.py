"""Measures DyOrc, alone and beside its peers. Run it from the repository; README.md says what is where."""
