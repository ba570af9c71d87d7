# pyright: basic, reportAttributeAccessIssue=false, reportMissingImports=false
"""The child: BentoML's own command, ``bentoml serve``, in this process."""

import sys

from bentoml_cli.cli import cli

from benchmarks.peers.child import served_port

if __name__ == "__main__":
    sys.argv = [
        "bentoml",
        "serve",
        "benchmarks.peers.bentoml.services:front",
        "--host",
        "127.0.0.1",
        "--port",
        str(served_port()),
    ]
    cli()
