"""One half of the engine: steps workflows, makes calls ready, answers requests. Knows nothing of queues and replicas."""
