"""Three programs that pass 8 MB to each other."""
