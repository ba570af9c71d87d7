"""A recurrent net that decides by itself how long it looks."""
