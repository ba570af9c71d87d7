"""Mosec: all programs in one worker."""
