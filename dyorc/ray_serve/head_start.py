"""What a server on this machine does before anything else: it sets Ray's environment, and starts this machine's fork server.

The fork server imports torch while this process does, on another core.
"""

from dataclasses import replace
from types import TracebackType
from typing import Self

from dyorc.ray_serve.ray_home import RayHome
from dyorc.replica.assignment import ForkServerSpec
from dyorc.replica.fork_client import ForkClient


class HeadStart:
    """Entered before any module of the user's is imported; left after everything else has ended.

    Attributes:
        home: Where Ray keeps its files.
        forks: This machine's fork server. Whoever has its replicas forked closes it.
        place: The same for others.
    """

    def __init__(self) -> None:
        self.home = RayHome()

    def __enter__(self) -> Self:
        self.home.__enter__()
        self.place = ForkServerSpec(folder=f"{self.home.folder}/forks", home=self.home.folder)
        self.forks = ForkClient(self.place)
        try:
            self.forks.open()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def preload(self, libraries: tuple[str, ...]) -> None:
        """Has the fork server import what the user's modules have imported here."""
        self.place = replace(self.place, modules=libraries)
        self.forks.preload(list(libraries))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.forks.close()
        self.home.__exit__(kind, error, trace)
