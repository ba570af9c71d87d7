"""What runs batches, one class at a time."""
