"""The live page: its files and their routes."""
