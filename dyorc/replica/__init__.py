"""Runs where the weights are: one program, batch after batch."""
