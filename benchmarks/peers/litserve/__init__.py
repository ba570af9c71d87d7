"""LitServe: all programs in one LitAPI."""
