"""BentoML: a service for each program, and one in front that runs the flow."""
