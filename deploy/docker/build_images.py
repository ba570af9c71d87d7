"""Builds DyOrc's images from the wheels in dist/, with BuildKit or without: `make images`.

    python3 deploy/docker/build_images.py [core] [cpu] [examples] [cuda] [-- OPTIONS OF docker build]

Asks first for all that the build needs, and says what is missing. BuildKit keeps downloads between builds. Where the docker
client has none, its classic builder gets the same Dockerfile without `--mount`. Every image that was built is run once: it has to
hold what its own list of packages says. Uses the standard library alone.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
SBOM = "/usr/share/doc/dyorc/sbom.cdx.json"
SPACE_BYTES: Mapping[str, int] = {"core": 2 * 10**9, "cpu": 8 * 10**9, "examples": 11 * 10**9, "cuda": 30 * 10**9}
"""Room on the engine's disk: the image, the stages that it is made in, and what pip downloads."""

_PACKAGES_OF_IMAGE = """
import importlib.metadata, json
pairs = {each.metadata["Name"].lower().replace("_", "-"): each.version for each in importlib.metadata.distributions(path=[PATH])}
print(json.dumps(pairs))
"""


class MissingError(Exception):
    """Something that the build needs is not there; the text says what, and how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """What builds images here.

    Attributes:
        has_buildkit: Whether it understands `--mount`.
        text: For the user.
    """

    has_buildkit: bool
    text: str


def find_builder(client_version: str, has_buildx: bool) -> Builder:
    """Returns which builder a docker client has.

    Until version 22, BuildKit is a part of the client; since then it is the plugin buildx.
    """
    major = int(client_version.partition(".")[0])
    if has_buildx or major < 23:
        return Builder(has_buildkit=True, text=f"docker {client_version}, BuildKit")
    how = "no buildx: the classic builder, which downloads all again after each change (Debian: apt install docker-buildx)"
    return Builder(has_buildkit=False, text=f"docker {client_version}, {how}")


def without_mounts(dockerfile: str) -> str:
    """Returns a Dockerfile as the classic builder understands it."""
    return re.sub(r"--mount=\S+ (\\\n)?\s*", "", dockerfile)


def dynamic_labels(wheel: str, revision: str, source: str) -> dict[str, str]:
    """Returns the labels that the Dockerfile cannot know."""
    version = wheel.split("-")[1]
    labels = {"version": version, "revision": revision, "source": source}
    return {f"org.opencontainers.image.{name}": value for name, value in labels.items() if value}


def main(arguments: Sequence[str]) -> None:
    """Builds them."""
    own, _, passed = " ".join(arguments).partition(" -- ")
    parser = argparse.ArgumentParser(usage=(__doc__ or "").splitlines()[2].strip())
    parser.add_argument("targets", nargs="*")
    targets: list[str] = parser.parse_args(own.split()).targets or ["core", "cpu"]
    options = passed.split()
    try:
        wheel = _wheel()
        builder = _check(targets, options)
        for target in targets:
            _build(target, builder, wheel, options)
            _check_image(f"dyorc:{target}")
    except MissingError as error:
        sys.exit(f"make images: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"make images: {' '.join(error.cmd[:4])} ... failed")


def _wheel() -> str:
    wheels = sorted(path.name for path in (ROOT / "dist").glob("dyorc*-*.whl"))
    pure = [wheel for wheel in wheels if wheel.endswith("-none-any.whl")]
    if len(pure) != 2 or len(wheels) > 3:
        wanted = "one pure wheel of dyorc-core, at most one with the compiled engine, and one of dyorc"
        raise MissingError(f"dist/ needs {wanted}, and has {wheels or 'none'}; run `make dist`")
    return pure[0]


def _check(targets: Iterable[str], options: Sequence[str]) -> Builder:
    """Returns the builder.

    Raises:
        MissingError: If something that the build needs is not there.
    """
    if unknown := set(targets) - SPACE_BYTES.keys():
        raise MissingError(f"there is no image {', '.join(sorted(unknown))}, only {', '.join(SPACE_BYTES)}")
    if shutil.which("docker") is None:
        raise MissingError("there is no docker client (Debian: apt install docker.io)")
    version = _output("docker", "version", "--format", "{{json .}}")
    answer = json.loads(version.stdout.strip() or "{}")
    if not answer.get("Server"):
        raise MissingError(f"no docker engine answers: {version.stderr.strip()}; start one, or set DOCKER_HOST")
    builder = find_builder(answer["Client"]["Version"], _output("docker", "buildx", "version").returncode == 0)
    print(f"builder: {builder.text}; engine {answer['Server']['Version']}", flush=True)
    _check_space(targets)
    _check_base(options)
    _check_torch(targets, options)
    if not builder.has_buildkit and "--secret" in " ".join(options):
        raise MissingError("--secret needs BuildKit: install buildx, or give the wheels in an image, by --build-arg WHEELS=...")
    return builder


def _check_space(targets: Iterable[str]) -> None:
    """An engine on another machine has a folder that is not here: then nothing is known."""
    folder = Path(_output("docker", "info", "--format", "{{.DockerRootDir}}").stdout.strip())
    needed = max(SPACE_BYTES[target] for target in targets)
    free = shutil.disk_usage(folder).free if folder.is_dir() else needed
    if free < needed:
        raise MissingError(f"{folder} has {free / 1e9:.0f} GB left, and this needs {needed / 1e9:.0f}")


def _check_base(options: Sequence[str]) -> None:
    """Brings the base image here, unless it is."""
    base = _build_argument("BASE", options) or re.findall(r"^ARG BASE=(.*)$", DOCKERFILE.read_text(), re.MULTILINE)[0]
    if _output("docker", "image", "inspect", base).returncode != 0:
        print(f"base: pulling {base} ...", flush=True)
        if (pulled := _output("docker", "pull", base)).returncode != 0:
            how = "--build-arg BASE=IMAGE names another: any Debian with Python 3.11 or newer, its venv module and apt"
            raise MissingError(f"the base image {base} cannot be had: {pulled.stderr.strip()}; {how}")
    print(f"base: {base}", flush=True)


def _check_torch(targets: Iterable[str], options: Sequence[str]) -> None:
    """The default index has torch with CUDA only; where its CPU build is has to be known."""
    known = any(_build_argument(name, options) for name in ("TORCH_INDEX", "WHEELS", "CPU_LIBRARIES"))
    if {"cpu", "examples"} & set(targets) and not known and "id=pip" not in " ".join(options):
        raise MissingError(
            "where is torch's CPU build? Set TORCH_INDEX to the index that PyTorch's installation page names for CPU, or give an "
            "image with the wheel by IMAGE_OPTIONS='--build-arg WHEELS=...', or pip's settings by IMAGE_OPTIONS='--secret "
            "id=pip,src=pip.conf'. `make images IMAGES=core` has no torch"
        )


def _build_argument(name: str, options: Sequence[str]) -> str:
    """Returns what docker's options say of an argument; empty if nothing."""
    given = re.findall(rf"--build-arg[ =]{name}=(\S*)", " ".join(options))
    return given[-1] if given else ""


def _build(target: str, builder: Builder, wheel: str, options: Sequence[str]) -> None:
    revision = _output("git", "-C", str(ROOT), "rev-parse", "HEAD").stdout.strip()
    labels = dynamic_labels(wheel, revision, os.environ.get("SOURCE_URL", ""))
    text = DOCKERFILE.read_text()
    subprocess.run(
        ["docker", "build", "--file=-", f"--target={target}", f"--tag=dyorc:{target}"]
        + [f"--label={name}={value}" for name, value in labels.items()]
        + [*options, str(ROOT)],
        input=text if builder.has_buildkit else without_mounts(text),
        env={**os.environ, "DOCKER_BUILDKIT": str(int(builder.has_buildkit))},
        text=True,
        check=True,
    )


def _check_image(image: str) -> None:
    """Compares what is installed in an image with its list of packages.

    Raises:
        MissingError: If they differ.
    """
    path = "f'/opt/dyorc/lib/python3.{__import__(\"sys\").version_info.minor}/site-packages'"
    code = _PACKAGES_OF_IMAGE.replace("PATH", path)
    installed = json.loads(_output("docker", "run", "--rm", "--network=none", "--read-only", image, "python", "-c", code).stdout)
    listed = packages_of_sbom(_output("docker", "run", "--rm", "--network=none", image, "cat", SBOM).stdout)
    if installed != listed:
        raise MissingError(f"{image} does not hold what {SBOM} lists: {sorted(set(installed.items()) ^ set(listed.items()))}")
    size = int(_output("docker", "image", "inspect", "--format", "{{.Size}}", image).stdout)
    print(f"{image}: {size / 1e6:.0f} MB, {len(installed)} packages, listed in {SBOM}", flush=True)


def packages_of_sbom(text: str) -> dict[str, str]:
    """Returns names and versions of a CycloneDX document's components."""
    return {each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(text)["components"]}


def _output(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
