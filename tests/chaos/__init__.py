"""Faults in a real server: it still serves, and nothing is lost or left behind."""
