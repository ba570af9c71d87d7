"""``dyorc cluster-keys``: makes the keys by which the processes of a cluster recognize each other."""

from pathlib import Path
from typing import Annotated

import typer


def cluster_keys(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, which only you can read.", dir_okay=False)],
) -> None:
    """Makes keys for gateways, orchestrators and replicas of several machines, to be copied to each (cluster.keys_file)."""
    from dyorc.transport.cluster_network import write_new_keys  # here, because it imports what tensors need

    write_new_keys(file)
    typer.echo(f"{file}: copy it to every machine of the cluster, and set cluster.keys_file to it.")
