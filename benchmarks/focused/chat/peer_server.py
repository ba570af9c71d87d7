"""Runs LitServe or Mosec as a child of this process, and says when it answers.

.venv-peers/NAME/bin/python -m benchmarks.focused.chat.peer_server MODULE [--stop-by-interrupt]
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from benchmarks.processes import adopt_orphans, end_children

_READY_S = 60.0
_END_S = 10.0


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("--stop-by-interrupt", action="store_true", help="SIGINT ends the child; otherwise SIGTERM")
    arguments = parser.parse_args()
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    folder = tempfile.mkdtemp(prefix="peer-")  # a short path, since Unix sockets are below it
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, "-m", arguments.module],
        env=os.environ | {"BENCHMARK_PORT": str(port), "TMPDIR": folder},
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        give_up_at_s = time.monotonic() + _READY_S
        while not _answers(port):
            if child.poll() is not None or time.monotonic() > give_up_at_s:
                sys.exit("the server did not get ready")
            time.sleep(0.1)
        print(f"Listening on http://127.0.0.1:{port}\nReady", flush=True)
        sys.exit(f"the server ended: {child.wait()}")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        child.send_signal(signal.SIGINT if arguments.stop_by_interrupt else signal.SIGTERM)
        for command in end_children(_END_S):
            print(f"had to kill: {command}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/infer", b"Who is Mara?", {"Content-Type": "application/octet-stream"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
