"""Faults in a real server: it still serves, nothing is lost, nothing is left."""
