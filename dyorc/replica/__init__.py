"""What runs where the weights are: one program, batch after batch."""
