"""How much a tenant that sends ten times what it may disturbs another: the other's 99th percentile alone, and beside the flood.

``python -m benchmarks.focused.hostile.tenants [--systems dyorc,dyorc_cells_2] [--rounds N] [--duration-s S]``. A real ``dyorc
serve``, with replicas on Ray and with two cells, and two tenants. The first may have 8 requests in flight, and 100 per second; it
has 80 connections and sends 1,000 per second. This is measured once with a program that takes no time, which shows only the
server's own work (and that all processes share the machine's cores), and once with one that keeps a device busy for 10 ms per
batch. The last line is one JSON object, by mode; the goal is a ratio of at most 1.5.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.focused import turns
from benchmarks.focused.hostile.beside import BOTH_MODES, Attack, Probe, measure
from benchmarks.serving import serving
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants

_VICTIMS = Path(__file__).with_name("victims.py")
_SYSTEMS = turns.dyorc_modes(f"{_VICTIMS}:answer")
_MAX_REQUESTS = 8
_MAX_REQUESTS_PER_S = 100.0
_EXCESS = 10
_DEVICE_S = {"no_device": 0.0, "device_10_ms": 0.01}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", default=BOTH_MODES, help=f"some of {','.join(_SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration-s", type=float, default=6.0)
    options = parser.parse_args()
    (flooding_key, flooding), (other_key, other) = new_key(), new_key()
    limited = TenantRecord(name="flooding", keys=[flooding], max_requests=_MAX_REQUESTS, max_requests_per_s=_MAX_REQUESTS_PER_S)
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "keys.toml"
        write_tenants(file, [limited, TenantRecord(name="other", keys=[other])])
        for system in options.systems.split(","):
            figures[system] = {}
            for name, device_s in _DEVICE_S.items():
                settings = {"DYORC_GATEWAY__KEYS_FILE": str(file), "VICTIM_DEVICE_S": str(device_s)}
                with serving(_SYSTEMS[system].command, settings) as (address, _):
                    flood = ["flood", address.url, str(_EXCESS * _MAX_REQUESTS), "--key", flooding_key]
                    attack = Attack(name=name, arguments=[*flood, "--rate", str(_EXCESS * _MAX_REQUESTS_PER_S)])
                    probe = Probe(url=address.url, duration_s=options.duration_s, headers={"X-API-Key": other_key})
                    figures[system][name] = measure(attack, probe, options.rounds)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
