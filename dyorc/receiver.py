"""Who gets the answer of a request."""

from typing import Protocol, TypeVar

from dyorc.arrays import Array

T = TypeVar("T")


class Receiver(Protocol[T]):
    """Turns a request's outputs into its answer. Called on the event loop, except where said otherwise."""

    def take(self, arrays: list[Array], /) -> T:
        """Turns the outputs, in the order of the workflow's signature, into the answer.

        They may be views of memory that is reused once this returns. Called on a thread if they are large, and again if whoever
        held them has taken them away meanwhile. Whatever it raises is the request's error.
        """
        ...

    def done(self, taken: T) -> None:
        """The answer is there. Nothing follows."""

    def failed(self, error: Exception) -> None:
        """There will be no answer. Nothing follows."""
