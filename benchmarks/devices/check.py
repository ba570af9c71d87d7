"""How well emulated devices keep their time, alone and beside processes that use all cores. The last line is one JSON object.

python -m benchmarks.devices.check
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.devices.device import Device
from benchmarks.devices.times import DeviceTime

_TIMES_MS = (0.2, 0.7, 2.0, 10.0, 40.0)
_MEASURED_S = 1.5
_LOAD = "while True: sum(range(10000))"


def errors(time_ms: float) -> dict[str, float]:
    """Returns by which fraction batches of this time were longer (median and 99th percentile), and the processor's share."""
    with tempfile.NamedTemporaryFile() as lock:
        device = Device(DeviceTime(time_ms / 1e3, 0.0), Path(lock.name))
        errors_ms: list[float] = []
        until_s, cpu_s, began_s = time.monotonic() + _MEASURED_S, time.process_time(), time.monotonic()
        while time.monotonic() < until_s:
            before_ns = device.busy_ns
            with device.batch(1):
                pass
            errors_ms.append((device.busy_ns - before_ns) / 1e6 / time_ms - 1)
        cpu_ratio = (time.process_time() - cpu_s) / (time.monotonic() - began_s)
        device.close()
    p50, p99 = np.percentile(errors_ms, (50, 99))
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4), "cpu_ratio": round(cpu_ratio, 3)}


def main() -> None:
    """Measures both, and prints the result."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, num_busy in (("alone", 0), ("beside busy processes", len(os.sched_getaffinity(0)))):
        with ExitStack() as stack:
            for _ in range(num_busy):
                busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", _LOAD]))
                stack.callback(busy.kill)
            result[name] = {f"{time_ms:g} ms": errors(time_ms) for time_ms in _TIMES_MS}
        for time_ms, figures in result[name].items():
            print(f"{name:<24} {time_ms:>7}: {figures}", file=sys.stderr, flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
