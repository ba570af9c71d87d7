"""One half of the engine: queues, batches and replicas. Knows nothing of workflows."""
