"""Every route and every error of the protocol, tried with NVIDIA's own client and by hand: `python -m tests.conformance`."""
