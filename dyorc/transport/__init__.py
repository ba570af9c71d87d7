"""How tensors and messages travel between processes."""
