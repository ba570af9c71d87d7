"""What is likely at a decision, and what may be spent on it."""
