"""Metrics in Prometheus' terms: what there is, where the values come from, and how they are shown."""
