"""``dyorc load``: the load generator, if it is installed."""

import importlib

import typer

from dyorc.errors import ConfigurationError


def load(context: typer.Context) -> None:
    """Puts load on a server and reports latency, rate and errors. The same as `python -m loadgen`."""
    # By name: dyorc does not depend on the load generator, and other commands do not wait for its imports.
    try:
        load_generator = importlib.import_module("loadgen.cli")
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"`dyorc load` needs the package `loadgen`; module {error.name!r} is not installed") from error
    load_generator.main(context.args, program="dyorc load")
