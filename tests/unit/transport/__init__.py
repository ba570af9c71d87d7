"""The ways of a tensor from process to process."""
