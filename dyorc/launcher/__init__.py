"""Where replicas come from: a Ray of our own, or one that is there."""
