"""Tensors that stay on a device: the contract of a device with memory of its own, and what one process keeps there."""
