"""References to tensors, without replicas."""
