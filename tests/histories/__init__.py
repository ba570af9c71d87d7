"""What clients of the real servers saw, as histories of operations, and whether one order of them explains all."""
