"""What passes between ranks: torch.distributed, and nothing else, is used here and in `rank_collectives.py`.

The same code runs over gloo and NCCL. A thread has the ranks, tags and directions that it uses for itself.
"""

import contextlib
from collections.abc import Generator, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from dyorc.planner.runtime.shaping import Shaper

Thing = TypeVar("Thing")

Message: TypeAlias = tuple[int, torch.Tensor]
"""A tensor, and the rank that it goes to or comes from."""


class LinkLostError(Exception):
    """Another rank did not answer, or its connection broke. Never leaves a rank's process: the parent finds out which it was."""


class Links:
    """One rank's links to the others."""

    def __init__(self, *, rank: int, num_ranks: int, device: torch.device, shaper: Shaper | None = None) -> None:
        self.rank = rank
        self.num_ranks = num_ranks
        self.device = device
        self._shaper = shaper
        self.sent_bytes = 0  # in messages; what torch's own collectives send is not known
        self._counting = Lock()
        self._groups: dict[tuple[int, ...], Any] = {}
        self._store: Any = None

    @property
    def is_shaped(self) -> bool:
        """Whether any link is slower than the machine's own."""
        return self._shaper is not None

    @property
    def takes_threads(self) -> bool:
        """Whether several threads may send and receive, each with its own ranks. NCCL has one order for all."""
        return self.device.type != "cuda"

    def start(self, store: Path, timeout_s: float) -> None:
        """Meets the other ranks, by a file: there is no port to agree on."""
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        self._store = FileStore(str(store), self.num_ranks)
        dist.init_process_group(
            backend,
            store=self._store,
            rank=self.rank,
            world_size=self.num_ranks,
            timeout=timedelta(seconds=timeout_s),
        )

    def stop(self) -> None:
        """Closes the connections."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def prepare(self, groups: Sequence[tuple[int, ...]]) -> None:
        """Makes groups for torch's own collectives. All ranks call it with the same groups in the same order."""
        for ranks in groups:
            if ranks not in self._groups:
                self._groups[ranks] = dist.new_group(list(ranks))

    def group(self, ranks: tuple[int, ...]) -> Any:
        """Returns the group of some ranks."""
        return self._groups[ranks]

    def announce(self, key: str, text: bytes) -> None:
        """Publishes a value for the other ranks, through the file by which they met."""
        self._store.set(f"dyorc/{key}", text)

    def learn(self, key: str) -> bytes:
        """Waits for a value that another rank publishes."""
        with lost_links():
            return self._store.get(f"dyorc/{key}")

    def meet(self) -> None:
        """Waits for all others."""
        with lost_links():
            dist.barrier()

    def leaving(self, sends: Sequence[tuple[int, int, Thing]]) -> Iterable[Thing]:
        """Yields things that go by other ways when they may leave, as over links that are as slow.

        Args:
            sends: For each thing, the rank that it goes to, and its bytes.
        """
        with self._counting:
            self.sent_bytes += sum(num_bytes for _, num_bytes, _ in sends)
        return self._shaper.leaving(sends) if self._shaper else (thing for _, _, thing in sends)

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], tag: int = 0) -> None:
        """Sends tensors to ranks and receives tensors from ranks, all at once; of one pair of ranks, in the order given.

        Tensors are contiguous; those without elements are skipped on both sides. What is sent with a tag is received with it.

        Raises:
            LinkLostError: A rank did not answer in time, or is gone.
        """
        incoming = [(source, as_bytes(tensor)) for source, tensor in receives if tensor.numel()]
        with self._counting:
            self.sent_bytes += sum(tensor.nbytes for _, tensor in sends)
        outgoing: Iterable[Message] = [(target, as_bytes(tensor)) for target, tensor in sends if tensor.numel()]
        if self._shaper:
            outgoing = self._shaper.leaving([(message[0], message[1].nbytes, message) for message in outgoing])
        with lost_links():
            if self.device.type == "cuda":  # NCCL starts both directions together, or neither
                batch = [dist.P2POp(dist.irecv, tensor, source) for source, tensor in incoming]
                batch += [dist.P2POp(dist.isend, tensor, target) for target, tensor in outgoing]
                pending = dist.batch_isend_irecv(batch) if batch else []
            else:
                pending = [dist.irecv(tensor, source, tag=tag) for source, tensor in incoming]
                pending += [dist.isend(tensor, target, tag=tag) for target, tensor in outgoing]
            for work in pending:
                if work is not None:
                    work.wait()


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of a contiguous tensor: what is moved without being added needs no type."""
    return tensor.reshape(-1).view(torch.uint8)


@contextlib.contextmanager
def lost_links() -> Generator[None]:
    """What torch raises when a rank is gone becomes our error.

    Raises:
        LinkLostError: That.
    """
    try:
        yield
    except RuntimeError as error:  # torch's own errors of communication are RuntimeErrors, too
        raise LinkLostError(str(error)) from error
