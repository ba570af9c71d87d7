"""``python -m benchmarks``."""

from benchmarks.table.main import main

main()
