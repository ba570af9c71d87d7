"""The live page: its files."""
