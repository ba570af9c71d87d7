"""Writes `docs/metrics.md`: `python -m dyorc.telemetry.metrics docs/metrics.md`."""

import sys
from pathlib import Path

from dyorc.telemetry.metrics.documentation import page

Path(sys.argv[1]).write_text(page())
