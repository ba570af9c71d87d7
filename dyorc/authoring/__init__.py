"""What users write: programs, workflows, decisions, and the tensors they declare."""
