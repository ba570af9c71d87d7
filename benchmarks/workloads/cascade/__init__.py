"""A cascade on handwritten digits."""
