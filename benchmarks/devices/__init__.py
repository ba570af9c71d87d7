"""The workloads on emulated accelerators: programs take as long as published models, and return recorded results."""
