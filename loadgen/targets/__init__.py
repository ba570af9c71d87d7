"""How requests are written and answers are read: one file for each protocol."""
