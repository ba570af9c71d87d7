"""Where the results of requests go: receivers in this process (`LocalAnswers`), or gateways in others."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from dyorc.answering.tensor_exchange import Tensors
from dyorc.engine.actions import AnswerPart, AnswerRequest
from dyorc.engine.events import AnswerTaken, Event, HolderJoined, PartTaken, ReplicaLeft, RequestArrived, RequestCancelled
from dyorc.transport.tiers import TensorHolder


class RequestOwner(Protocol):
    """Gets the results of its requests. On the event loop; must not wait.

    Stored tensors are kept until the engine learns that their bytes were read (`AnswerTaken`, `PartTaken`).
    """

    def answer(self, action: AnswerRequest) -> None:
        """Takes the answer of a request. It comes again if the engine learns that it was lost."""
        ...

    def part(self, action: AnswerPart) -> None:
        """Takes a part of the answer of a request that streams."""
        ...

    def confirm_effect(self, requests: Sequence[int], go: Callable[[bool], None]) -> None:
        """Learns that these requests, its own among them, are about to have a side effect that must not be repeated.

        Args:
            go: Called with True once it knows, perhaps before this returns; with False if it never will.
        """
        ...

    def fail(self, request_id: int, error: Exception) -> None:
        """Takes the error of a request. Nothing follows it."""
        ...


class RequestOwners:
    """The owners of requests that come from other processes.

    Args:
        numbers: Of requests, in this whole process.
        post: Takes an event for the engine.
        arrive: Takes a request for the engine.

    Attributes:
        of_requests: The owner of each request in flight.
    """

    def __init__(
        self,
        tensors: Tensors,
        numbers: Iterator[int],
        post: Callable[[Event], None],
        arrive: Callable[[RequestArrived], None],
    ) -> None:
        self.of_requests: dict[int, RequestOwner] = {}
        self._tensors = tensors
        self._numbers = numbers
        self._post = post
        self._arrive = arrive
        self._holders: set[str] = set()

    # Processes

    def add_holder(self, holder: TensorHolder, released: Callable[[int], None]) -> None:
        """Adds a process in which inputs of requests lie.

        Args:
            released: Called with each of its blocks that is no longer needed.
        """
        self._tensors.join(holder, released)
        self._holders.add(holder.holder_id)
        self._post(HolderJoined(holder.holder_id))

    def remove_holder(self, holder_id: str) -> None:
        """Removes such a process, which is gone."""
        self._holders.discard(holder_id)
        self._tensors.leave(holder_id)
        self._post(ReplicaLeft(holder_id, "the gateway has left"))

    def holders_joined(self) -> list[Event]:
        """Returns the events that tell a new engine about these processes."""
        return [HolderJoined(holder) for holder in self._holders]

    # Requests

    def next_number(self) -> int:
        """Returns a number for a request (`ask`)."""
        return next(self._numbers)

    def ask(self, arrived: RequestArrived, owner: RequestOwner) -> None:
        """Runs a request of another process. Its result may be known before this returns."""
        self.of_requests[arrived.request_id] = owner
        self._arrive(arrived)

    def tell(self, event: AnswerTaken | PartTaken) -> None:
        """Passes on what an owner reports about tensors that it has read. Call `end` for a request whose answer was taken."""
        self._post(event)

    def end(self, request_id: int) -> None:
        """Forgets a request whose owner has its answer."""
        self.of_requests.pop(request_id, None)

    def give_up(self, request_id: int) -> None:
        """Cancels a request that its owner no longer wants. If it has an answer already, nobody will read it."""
        if self.of_requests.pop(request_id, None) is not None:
            self._post(RequestCancelled(request_id))
            self._post(AnswerTaken(request_id))
