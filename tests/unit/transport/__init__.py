"""The ways that tensors take between processes."""
