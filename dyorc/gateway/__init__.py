"""What clients talk to, by the Open Inference Protocol v2: HTTP, gRPC, jobs and the live page."""
