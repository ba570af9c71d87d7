"""A base image without a registry: what dpkg has installed on this machine of a shell and Python, and all that they need.

The Python is the one that runs the tests, since its libraries are to be used with it.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.compose.engine import Engine

_PACKAGES = [
    "bash",
    "ca-certificates",
    "coreutils",
    "grep",
    "hostname",
    "libgomp1",
    "libstdc++6",
    "passwd",
    "python3-venv",
    "sed",
]
_LEFT_OUT = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info", "/usr/share/i18n", "/usr/lib/locale")
_FOLDERS = ("etc", "opt", "proc", "root", "run", "sys", "tmp", "usr", "usr/local/bin", "var/lib", "var/tmp")
_PASSWD = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


def why_not() -> str:
    """Returns what keeps this machine from being a base image; empty if nothing does."""
    if shutil.which("dpkg-query") is None:
        return "there is no dpkg, of whose files a base image could be made"
    missing = sorted(set(_PACKAGES) - _installed().keys())
    return f"Debian's packages {', '.join(missing)} are not installed" if missing else ""


def import_base(engine: Engine, tag: str) -> None:
    """Makes the image."""
    names = sorted(_closure(_PACKAGES))
    files = subprocess.run(["dpkg", "--listfiles", *names], capture_output=True, text=True, check=True).stdout.splitlines()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _fill(root)
        wanted = {_real(path) for path in files if path.startswith("/") and not path.startswith(_LEFT_OUT)}
        listed = root / ".files"
        listed.write_text("\n".join(sorted(path.lstrip("/") for path in wanted if path and not os.path.isdir(path))))
        for link in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink(f"/{link}"):
                (root / link).symlink_to(os.readlink(f"/{link}"))
        command = ["tar", "--create", "--no-recursion", "-C", "/", "--files-from", str(listed), "--recursion", *_own_python()]
        with subprocess.Popen([*command, "-C", folder, "--exclude=./.files", "."], stdout=subprocess.PIPE) as archive:
            path = f"ENV PATH={sys.base_prefix}/bin:{_PATH}"
            engine.run(["docker", "import", f"--change={path}", "-", tag], stdin=archive.stdout)


def _own_python() -> list[str]:
    """Returns what tar takes of the Python that runs this; nothing, if it is Debian's."""
    if sys.base_prefix == "/usr":
        return []
    home = sys.base_prefix.lstrip("/")
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    parts = ["bin/python3", f"bin/{os.path.basename(os.path.realpath(sys.executable))}", library]
    parts += [f"lib/{path.name}" for path in Path(sys.base_prefix, "lib").glob("libpython*.so*")]
    return ["--exclude=site-packages", f"--exclude={library}/test", *(f"{home}/{part}" for part in parts)]


def _fill(root: Path) -> None:
    """Writes what packages make when they are installed, and an init, which the engine brings along."""
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "usr/bin").mkdir()
    (root / "usr/bin/sh").symlink_to("bash")
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    certificates = Path("/", _CERTIFICATES)
    if certificates.is_file():
        (root / _CERTIFICATES).parent.mkdir(parents=True)
        shutil.copy(certificates, root / _CERTIFICATES)
    shutil.copy(str(shutil.which("docker-init")), root / "usr/local/bin/tini")


def _real(path: str) -> str:
    """Returns a path without the links in its folders: packages say /bin where it is /usr/bin."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name) if os.path.lexists(path) else ""


def _name(relation: str) -> str:
    """Returns the package that a relation names, such as ``libc6 (>= 2.36)``."""
    return re.split(r"[ :(]", relation.strip(), maxsplit=1)[0]


@functools.cache
def _installed() -> dict[str, list[list[str]]]:
    """Returns the packages that are installed, each with what it needs: of every list, one."""
    form = "${db:Status-Abbrev}\t${Package}\t${Pre-Depends}, ${Depends}\n"
    found: dict[str, list[list[str]]] = {}
    for line in _dpkg_query(form):
        status, name, depends = line.split("\t")
        if status.startswith("ii"):
            found[name] = [[_name(one) for one in each.split("|")] for each in depends.split(",") if each.strip()]
    return found


@functools.cache
def _provided() -> dict[str, str]:
    """Returns the packages that stand for others, by what they stand for."""
    pairs = (line.split("\t") for line in _dpkg_query("${Package}\t${Provides}\n"))
    return {_name(one): name for name, provides in pairs for one in provides.split(",") if one.strip()}


def _dpkg_query(form: str) -> list[str]:
    command = ["dpkg-query", "--show", f"--showformat={form}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _closure(names: list[str]) -> set[str]:
    """Returns packages with all that they need. What is not installed, nobody here needs."""
    known, found, left = _installed(), set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found and name in known:
            found.add(name)
            wanted = [[_provided().get(one, one) if one not in known else one for one in need] for need in known[name]]
            left += [next((one for one in need if one in known), "") for need in wanted]
    return found
