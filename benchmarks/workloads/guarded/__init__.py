"""A guard beside a text generator."""
