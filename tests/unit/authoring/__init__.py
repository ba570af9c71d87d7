"""What users write: signatures, Refs, decisions, the discovery of programs."""
