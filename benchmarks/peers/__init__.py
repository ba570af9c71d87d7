"""The peers: each in its own environment, each serving the same programs as well as it can."""
