"""The table: DyOrc beside its peers on all workloads. See docs/benchmarks.md."""
