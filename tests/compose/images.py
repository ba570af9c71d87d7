"""Images for the cluster of a test, made without a registry or an index.

DyOrc's is built by its Dockerfile, from a wheel of this checkout. What takes minutes and says nothing about it is left out: the
base is made of this machine's packages, and the libraries, gigabytes, are those of the environment that runs the tests, mounted
where they are here. Redis is the one that `tests.redis_server` starts.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

from tests.compose.base_image import import_base
from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, ROOT
from tests.compose.engine import Engine, hanging_is_no_engine

_BASE, _LIBRARIES, REDIS = "dyorc-test/base", "dyorc-test/libraries", "dyorc-test/redis"
_LIMIT_S = 120.0
"""For all of them, and for the first container."""
_SERVICES = ("keys", "ray-head", "ray-worker", *ORCHESTRATORS, *GATEWAYS)


def build(engine: Engine, folder: Path) -> Path:
    """Builds all.

    Args:
        folder: An empty one.

    Returns:
        A file for Compose, beside the repository's, that mounts the libraries.

    Raises:
        NoEngineError: If the engine runs no containers, or hangs.
    """
    with hanging_is_no_engine():
        return _build_all(engine.within(_LIMIT_S), folder)


def _build_all(engine: Engine, folder: Path) -> Path:
    import_base(engine, _BASE)
    engine.try_out(_BASE)
    # an environment may borrow another's libraries
    homes = sorted({sysconfig.get_paths()["purelib"], str(Path(np.__file__).resolve().parents[1])})
    _build(engine, _LIBRARIES, f"""
        FROM {_BASE}
        RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/dyorc \\
            && printf '%s\\n' {" ".join(homes)} > $(echo /opt/dyorc/lib/python3*/site-packages)/libraries.pth \\
            && printf '#!/opt/dyorc/bin/python\\nfrom ray.scripts.scripts import main\\nmain()\\n' > /opt/dyorc/bin/ray \\
            && chmod 755 /opt/dyorc/bin/ray
        """)  # fmt: skip
    programs = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    _build(engine, REDIS, f"""
        FROM {_BASE}
        COPY redis-server redis-cli /usr/local/bin/
        RUN useradd redis && install --directory --owner=redis /data
        """, *(str(shutil.which(name, path=programs)) for name in ("redis-server", "redis-cli")))  # fmt: skip
    _build_ours(engine, folder)
    override = folder / "libraries.json"
    mounts = {"volumes": [f"{home}:{home}:ro" for home in homes]}
    override.write_text(json.dumps({"services": dict.fromkeys(_SERVICES, mounts)}))
    return override


def _build_ours(engine: Engine, folder: Path) -> None:
    context = folder / "context"
    subprocess.run(["make", "--silent", ".venv-build/.made"], cwd=ROOT, check=True, capture_output=True, timeout=engine.left_s)
    command = [str(ROOT / ".venv-build/bin/python"), "-m", "build", "--wheel", "--outdir", str(context / "dist"), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=engine.left_s)
    shutil.copy(ROOT / "constraints.txt", context)
    for name in ("deploy/docker", "services"):
        shutil.copytree(ROOT / name, context / name)
    arguments = [f"--build-arg=BASE={_BASE}", f"--build-arg=LIBRARIES={_LIBRARIES}", "--tag=dyorc:cpu"]
    engine.docker("build", f"--file={context}/deploy/docker/Dockerfile", *arguments, str(context))


def _build(engine: Engine, tag: str, dockerfile: str, *files: str) -> None:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        Path(folder, "Dockerfile").write_text(dockerfile)
        for path in files:
            shutil.copy(path, folder)
        engine.docker("build", f"--tag={tag}", folder)
