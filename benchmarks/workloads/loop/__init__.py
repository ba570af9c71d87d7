"""A recurrent net that decides itself how long it looks."""
