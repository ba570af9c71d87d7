"""``python -m benchmarks``."""

from benchmarks.main import main

main()
