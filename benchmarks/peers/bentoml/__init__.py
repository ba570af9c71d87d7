"""BentoML: one service per program, and one in front that runs the flow."""
