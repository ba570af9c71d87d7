"""Where replicas come from: a Ray of our own, or an existing cluster."""
