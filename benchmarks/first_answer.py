"""From nothing to the first answer, timed as a new user: install the core, write twenty lines, serve them, ask by curl.

    python -m benchmarks.first_answer [--wheel dist/dyorc_core-*.whl] [--root FOLDER] [--limit-s 180]

Downloads count: pip's cache is off. `--root` is a root file system that holds nothing but Python with its venv module and
curl, as `debootstrap --variant=minbase --include=python3,python3-venv,curl,ca-certificates` makes one; then everything runs
in it by chroot (needs root). Without it, everything runs in a new virtual environment. The twenty lines and the curl command
are those of packages/description.md. The last line of stdout is one JSON object; the exit code is 1 if the answer came after
the limit.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dyorc.testing import ServerProcess

_ROOT = Path(__file__).parents[1]
_TIMEOUT_S = 600.0


def main() -> int:
    """Prints how long each step took."""
    arguments = _parse()
    page = (_ROOT / "packages" / "description.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (curl,) = re.findall(r"^    (curl localhost:8000/.*\n.*)$", page, re.MULTILINE)
    parent = arguments.root / "tmp" if arguments.root else None
    with tempfile.TemporaryDirectory(prefix="dyorc-first-", dir=parent) as folder:
        home = Path(folder)
        inside = Path("/") / home.relative_to(arguments.root) if arguments.root else home
        enter = ["chroot", str(arguments.root)] if arguments.root else []
        python = shutil.which("python3", path="/usr/bin") if arguments.root else sys.executable
        shutil.copy(arguments.wheel, home)
        (home / "app.py").write_text(lines)
        steps: dict[str, float] = {}
        started_s = time.monotonic()

        def run(step: str, *command: str) -> str:
            begun_s = time.monotonic()
            answer = subprocess.run([*enter, *command], check=True, timeout=_TIMEOUT_S, env=environment, stdout=subprocess.PIPE)
            steps[step] = round(time.monotonic() - begun_s, 2)
            return answer.stdout.decode()

        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run("environment", str(python), "-m", "venv", str(inside / "venv"))
        bin_folder = inside / "venv" / "bin"
        run("install", str(bin_folder / "pip"), "install", "--quiet", "--no-cache-dir", str(inside / arguments.wheel.name))
        begun_s = time.monotonic()
        command = [str(bin_folder / "dyorc"), "serve", f"{inside / 'app.py'}:classify", "--in-process"]
        ports = ["--port", "0", "--grpc-port", "0"]
        with ServerProcess([*enter, *command, *ports], environment={"PYTHONPATH": ""}, folder=home) as server:
            server.wait_until_ready(_TIMEOUT_S)
            steps["serve"] = round(time.monotonic() - begun_s, 2)
            asked = curl.replace("localhost:8000", server.url.removeprefix("http://"))
            answer = json.loads(run("curl", "bash", "-c", f"{asked} --silent --show-error --fail --noproxy '*'"))
            total_s = round(time.monotonic() - started_s, 2)
    (output,) = answer["outputs"]
    is_right = output["shape"] == [10] and abs(sum(output["data"]) - 1) < 1e-4
    for step, seconds in steps.items():
        print(f"{seconds:8.2f} s  {step}")
    where = "root" if arguments.root else "venv"
    print(json.dumps({"benchmark": "first_answer", "in": where, "total_s": total_s, "steps_s": steps, "is_right": is_right}))
    return 0 if is_right and total_s <= arguments.limit_s else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_answer")
    built = sorted((_ROOT / "dist").glob("dyorc_core-*.whl"))
    parser.add_argument("--wheel", type=Path, default=built[0] if built else None, help="by default the compiled one in dist/")
    parser.add_argument("--root", type=Path, help="a root file system to change to")
    parser.add_argument("--limit-s", type=float, default=180.0)
    arguments = parser.parse_args()
    if arguments.wheel is None:
        parser.error("there is no wheel in dist/: run `make dist`")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
