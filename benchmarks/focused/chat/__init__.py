"""A small language model served token by token, compared with batches of whole requests and with a loop by hand."""
