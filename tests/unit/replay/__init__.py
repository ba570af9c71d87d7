"""Histories, and their replays on other versions."""
