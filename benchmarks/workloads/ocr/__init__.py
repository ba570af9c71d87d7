"""Reading small printed pages."""
