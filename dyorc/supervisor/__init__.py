"""Processes that serve together on one port, and the small process that starts, watches and restarts them."""
