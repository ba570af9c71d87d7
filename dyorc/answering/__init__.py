"""Reads answers where they lie and hands them to their receivers, in the process of the orchestrator or of a gateway."""
