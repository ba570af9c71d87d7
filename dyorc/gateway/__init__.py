"""What clients talk to: HTTP, by the Open Inference Protocol v2."""
