"""Replicas: processes that each run the batches of one program, and what starts and keeps them."""
