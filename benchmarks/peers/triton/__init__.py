"""Triton Inference Server with its Python back end."""
