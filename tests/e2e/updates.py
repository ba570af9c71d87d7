"""A workflow that changes while clients ask for it."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.client.retries import Retries
from dyorc.errors import DeployError
from tests.client_threads import ClientThreads
from tests.deadlines import wait_until

_NETS = """
import numpy as np
from jaxtyping import Float
import dyorc

Vectors = Float[np.ndarray, "batch n"]

@dyorc.program
class Plus:
    def __init__(self, number: float) -> None:
        self.number = number
    def __call__(self, x: Vectors) -> Vectors:
        return x + self.number

@dyorc.program
def double(x: Vectors) -> Vectors:
    return 2 * x
"""
APP = """
import numpy as np
from jaxtyping import Float
import dyorc
from nets import Plus, double

plus = Plus({number})

@dyorc.workflow
async def flow(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return plus(double(x))
"""
_HELD = """
import time
from pathlib import Path

@dyorc.program
def held(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    folder = Path("FOLDER")
    (folder / "started-NUMBER").touch()
    while not (folder / "open").exists():
        time.sleep(0.01)
    return x

@dyorc.workflow"""
X = np.array([1, 2], np.float32)


class App:
    """A workflow's files, which a test changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = f"{folder}/app.py:flow"
        (folder / "nets.py").write_text(_NETS)
        self.write(1)

    def write(self, number: object, change: Callable[[str], str] = lambda text: text) -> None:
        """Writes a version that adds this number."""
        (self.folder / "app.py").write_text(change(APP.format(number=number)))

    def write_held(self, number: int) -> None:
        """Writes a version that notes in a file `started-NUMBER` that it runs, and waits until there is a file `open`."""
        held = _HELD.replace("FOLDER", str(self.folder)).replace("NUMBER", str(number))
        changes = (("@dyorc.workflow", held), ("plus(double(x))", "plus(held(double(x)))"))
        self.write(number, lambda text: reduce(lambda found, change: found.replace(*change), changes, text))


class Load(ClientThreads):
    """Clients that ask again and again, and check that each answer is that of some version."""

    def __init__(self, url: str, num_clients: int = 4) -> None:
        self.failures: list[str] = []
        self.seen: set[float] = set()
        self.num = 0
        self._url = url
        super().__init__([self._ask] * num_clients)

    def _ask(self) -> None:
        with dyorc.Client(self._url, retries=Retries(max_attempts=1)) as client:
            while not self.is_over.is_set():
                try:
                    y = client.infer("flow", x=X)
                    np.testing.assert_array_equal(np.diff(y), [2])
                    self.seen.add(float(y[0]) - 2)
                except Exception as error:
                    self.failures.append(repr(error))
                self.num += 1


def update_under_load(app: App, url: str, client: dyorc.Client, num_updates: int) -> None:
    """Deploys version after version, one that cannot be loaded among them."""
    with Load(url) as load:
        for number in range(2, num_updates + 2):
            wait_until(lambda num=load.num: load.num > num + 20, "requests are answered")
            if number == 3:
                app.write("[][0]")
                with pytest.raises(DeployError, match=r"IndexError: list index out of range \(app\.py, line 7\)"):
                    client.deploy(app.target)
            app.write(number)
            assert client.deploy(app.target)["default"] == str(number)
            assert client.infer("flow", x=X)[0] == 2 + number
            wait_until(lambda number=number: number in load.seen, "the other clients get it, too")
    assert not load.failures, load.failures[:3]
    assert load.seen == set(range(1, num_updates + 2))
