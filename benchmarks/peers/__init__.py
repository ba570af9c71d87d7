"""The peers. Each has its own environment and serves the same programs as well as it can."""
