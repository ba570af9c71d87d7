"""Images for the containers of a test, made without a registry or an index.

DyOrc's two, core and cpu, are built by its Dockerfile, from wheels of this checkout. What takes minutes and says nothing about it
is left out: the base is made of this machine's packages; the core's libraries are copies of those of the environment that runs
the tests, and the others, gigabytes, are mounted where they are here. Redis is the one that `tests.redis_server` starts.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from packaging.requirements import Requirement

from tests.compose.base_image import import_base
from tests.compose.cluster import GATEWAYS, ORCHESTRATORS, ROOT
from tests.compose.engine import Engine, hanging_is_no_engine

_BASE, _LIBRARIES, REDIS = "dyorc-test/base", "dyorc-test/libraries", "dyorc-test/redis"
CORE, CPU = "dyorc:core", "dyorc:cpu"
_LIMIT_S = 420.0
"""For all of them, and for the first container: a minute where nothing else runs."""
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


def build_next(engine: Engine, tag: str) -> None:
    """Builds another version of the image of the cluster: the same, with the label `upgraded`."""
    _build(engine, tag, f"FROM {CPU}\nLABEL upgraded=yes\n")


def _build_all(engine: Engine, folder: Path) -> Path:
    import_base(engine, _BASE)
    engine.try_out(_BASE)
    # an environment may borrow another's libraries
    homes = sorted({sysconfig.get_paths()["purelib"], str(Path(np.__file__).resolve().parents[1])})
    _build_libraries(engine, folder / "libraries", homes)
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


def _build_libraries(engine: Engine, folder: Path, homes: list[str]) -> None:
    """Makes what the Dockerfile's stages of tools and libraries make: environments in /opt/tools, and in /core and /cpu."""
    _copy(_needs(importlib.metadata.distribution("dyorc-core"), {""}), folder / "core")
    _copy([Requirement("cyclonedx-bom")], folder / "tools")
    packages = f"lib/python3.{sys.version_info.minor}/site-packages"
    (folder / "Dockerfile").write_text(f"""
        FROM {_BASE}
        RUN python3 -m venv /opt/tools && python3 -m venv --without-pip /opt/dyorc \\
            && mkdir -p /core/opt /cpu/opt/dyorc/{packages} && cp -r /opt/dyorc /core/opt \\
            && printf '%s/opt/dyorc/{packages}\\n' /core /cpu /package > /opt/dyorc/{packages}/trees.pth \\
            && printf '#!/opt/tools/bin/python\\nfrom cyclonedx_py._internal.cli import run\\nraise SystemExit(run())\\n' \\
                > /opt/tools/bin/cyclonedx-py \\
            && printf '%s\\n' {" ".join(homes)} > /cpu/opt/dyorc/{packages}/libraries.pth && mkdir /cpu/opt/dyorc/bin \\
            && printf '#!/opt/dyorc/bin/python\\nfrom ray.scripts.scripts import main\\nmain()\\n' > /cpu/opt/dyorc/bin/ray \\
            && chmod 755 /opt/tools/bin/cyclonedx-py /cpu/opt/dyorc/bin/ray
        COPY tools /opt/tools/{packages}/
        COPY core /core/opt/dyorc/{packages}/
        """)  # fmt: skip
    engine.docker("build", f"--tag={_LIBRARIES}", str(folder))


def _copy(requirements: Iterable[Requirement], folder: Path) -> None:
    """Copies distributions with all that they need, as they are installed here."""
    seen, left = set[str](), list(requirements)
    while left:
        requirement = left.pop()
        distribution = importlib.metadata.distribution(requirement.name)
        for file in distribution.files or () if requirement.name not in seen else ():
            if ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(distribution.locate_file(file)), folder / file)  # with its time, which bytecode names
        wanted = {f"{requirement.name}[{extra}]" for extra in ("", *requirement.extras)} - seen
        seen |= {requirement.name, *wanted}
        left += _needs(distribution, {each.partition("[")[2].rstrip("]") for each in wanted})


def _needs(distribution: importlib.metadata.Distribution, extras: Iterable[str]) -> list[Requirement]:
    needs = map(Requirement, distribution.requires or ())
    return [need for need in needs if any(need.marker is None or need.marker.evaluate({"extra": extra}) for extra in extras)]


def _build_ours(engine: Engine, folder: Path) -> None:
    context = folder / "context"
    subprocess.run(["make", "--silent", ".venv-build/.made"], cwd=ROOT, check=True, capture_output=True, timeout=engine.left_s)
    build = [str(ROOT / ".venv-build/bin/python"), "-m", "build", "--wheel", f"--outdir={context}/dist"]
    environment = {**os.environ, "DYORC_COMPILE": "0"}  # compiling takes minutes, and is tried by `make test-dist`
    for project in (ROOT, ROOT / "packages/dyorc"):
        subprocess.run([*build, str(project)], env=environment, check=True, capture_output=True, timeout=engine.left_s)
    shutil.copy(ROOT / "constraints.txt", context)
    for name in ("deploy/docker", "services"):
        shutil.copytree(ROOT / name, context / name)
    replaced = {"BASE": _BASE, "TOOLS": _LIBRARIES, "CORE_LIBRARIES": _LIBRARIES, "CPU_LIBRARIES": _LIBRARIES}
    arguments = [f"--build-arg={name}={image}" for name, image in replaced.items()]
    for target in (CORE, CPU):
        file = f"--file={context}/deploy/docker/Dockerfile"
        engine.docker("build", file, f"--target={target.partition(':')[2]}", f"--tag={target}", *arguments, str(context))


def _build(engine: Engine, tag: str, dockerfile: str, *files: str) -> None:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        Path(folder, "Dockerfile").write_text(dockerfile)
        for path in files:
            shutil.copy(path, folder)
        engine.docker("build", f"--tag={tag}", folder)
