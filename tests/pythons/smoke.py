"""`PYTHON -m tests.pythons.smoke STEP`: uses DyOrc as a user does, in the environment that runs it, without torch. Exits with 0
if
the step works.
"""

import importlib
import pkgutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import grpc
import numpy as np

import dyorc
import loadgen
from dyorc.errors import MissingLibraryError
from dyorc.protocol import inference_pb2, inference_pb2_grpc
from dyorc.testing import serving
from tests.integration.other_systems import scaled as workflow

_OPTIONAL = frozenset({"torch", "ray", "redis", "opentelemetry", "matplotlib", "scipy"})
_SOURCE = Path(workflow.__file__)
_TIMEOUT_S = 120.0
_IMAGE = np.arange(2**18, dtype=np.float32)


def import_all() -> None:
    """Imports every module; none may warn, and none may need a library that is not there, other than the optional ones."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "dyorc.offline")  # the planner's old name
    warnings.filterwarnings("ignore", "Due to '_pack_'")  # of hdrhistogram, on 3.14
    for package in (dyorc, loadgen):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except MissingLibraryError:
                    continue  # of the optional ones
                except ModuleNotFoundError as error:
                    if (error.name or "").partition(".")[0] not in _OPTIONAL:
                        raise


def run() -> None:
    """Runs a workflow in this process: one of a module, and one whose annotations are texts."""
    np.testing.assert_array_equal(dyorc.run(workflow.scaled, _IMAGE), workflow.expected(_IMAGE))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "scaled_later.py").write_text("from __future__ import annotations\n" + _code_of(_SOURCE))
        sys.path.insert(0, folder)
        later = importlib.import_module("scaled_later")
    np.testing.assert_array_equal(dyorc.run(later.scaled, _IMAGE), workflow.expected(_IMAGE))


def _code_of(path: Path) -> str:
    return path.read_text().partition('"""\n')[2]  # without the docstring, which would stand behind the import


def cell() -> None:
    """Asks a cell over HTTP and gRPC, stores a job in SQLite, and loads another version while it serves."""
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder, "app.py")
        app.write_text(_SOURCE.read_text())
        target = f"{app}:scaled"
        with serving(target, "--port", "0", in_process=True) as server, dyorc.Client(server.url, timeout_s=_TIMEOUT_S) as client:
            _check(client)
            _check_grpc(server.grpc_address)
            np.testing.assert_array_equal(client.submit("scaled", image=_IMAGE).result(_TIMEOUT_S), workflow.expected(_IMAGE))
            app.write_text(_SOURCE.read_text().replace("np.float32(2)", "np.float32(3)"))
            client.deploy(target, version="2")
            give_up_s = time.monotonic() + _TIMEOUT_S
            small = np.zeros(3, np.float32)
            while client.infer("scaled", image=small)[0] != 3:  # it is loaded beside the old one
                if time.monotonic() > give_up_s:
                    raise TimeoutError(f"version 2 does not answer: {client.deployments()}")
            assert server.process.poll() is None


def ray() -> None:
    """Asks a server whose programs are replicas on Ray."""
    with serving(f"{_SOURCE}:scaled", "--port", "0") as server, dyorc.Client(server.url, timeout_s=_TIMEOUT_S) as client:
        _check(client)


def _check(client: dyorc.Client) -> None:
    for image in (_IMAGE[:8], _IMAGE, np.tile(_IMAGE, 8)):  # up to 8 MB
        np.testing.assert_array_equal(client.infer("scaled", image=image), workflow.expected(image))


def _check_grpc(address: str) -> None:
    tensor = inference_pb2.ModelInferRequest.InferInputTensor(name="image", datatype="FP32", shape=[8])
    request = inference_pb2.ModelInferRequest(model_name="scaled", inputs=[tensor], raw_input_contents=[_IMAGE[:8].tobytes()])
    with grpc.insecure_channel(address) as channel:
        answer = inference_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=_TIMEOUT_S)
    np.testing.assert_array_equal(np.frombuffer(answer.raw_output_contents[0], np.float32), workflow.expected(_IMAGE[:8]))


_STEPS = {"import": import_all, "run": run, "cell": cell, "ray": ray}

if __name__ == "__main__":
    _STEPS[sys.argv[1]]()
