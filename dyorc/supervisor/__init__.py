"""Processes that serve together, and the small one that starts them, watches them and starts them again."""
