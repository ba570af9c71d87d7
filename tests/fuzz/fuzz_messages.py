"""Fuzzes what comes over the wire with Atheris: ``python -m tests.fuzz.fuzz_messages -max_total_time=60``.

Options are libFuzzer's. Anything but a `TransportError` ends it, and leaves the input in a file ``crash-...``.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

try:
    import atheris
except ImportError:
    sys.exit("Atheris is not installed: pip install atheris")

with atheris.instrument_imports(include=["dyorc"]):
    from tests.exchanges import tensor_path
    from tests.fuzz.targets import Target

_MAX_FRAMES = 3


def join(header: bytes, frames: Sequence[bytes]) -> bytes:
    """Returns a message as one input of the fuzzer: how many frames, the length of the header and of each frame, and then all
    of them.
    """
    parts = [header, *frames]
    lengths = b"".join(len(part).to_bytes(2, "little") for part in parts)
    return bytes([len(frames)]) + lengths + b"".join(parts)


def split(data: bytes) -> list[bytes]:
    """Undoes `join`, and makes something of any input."""
    num_parts = 1 + (data[0] if data else 0) % (_MAX_FRAMES + 1)
    at = 1 + 2 * num_parts
    parts: list[bytes] = []
    for number in range(num_parts):
        length = int.from_bytes(data[1 + 2 * number : 3 + 2 * number], "little")
        parts.append(data[at : at + length])
        at += length
    return parts


def fuzz(folder: str, options: Sequence[str]) -> None:
    """Fuzzes until libFuzzer's options say stop. Does not return: libFuzzer ends the process itself."""
    with tensor_path(folder, arena_bytes=2**20) as path:
        target = Target(path)
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, (header, frames) in enumerate(target.seeds()):
            (corpus / str(number)).write_bytes(join(header, frames))

        def take(data: bytes) -> None:
            header, *frames = split(data)
            target.take(header, frames)

        atheris.Setup([sys.argv[0], *options, "-rss_limit_mb=2048", "-malloc_limit_mb=512", str(corpus)], take)
        atheris.Fuzz()


def main() -> int:
    """Has another process fuzz, and removes what that leaves behind."""
    match sys.argv[1:]:
        case ["--folder", folder, *options]:
            fuzz(folder, options)
            return 0
        case options:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "tests.fuzz.fuzz_messages", "--folder", folder, *options]
                return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
