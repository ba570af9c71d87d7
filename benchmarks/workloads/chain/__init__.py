"""Three programs with 8 MB between them."""
