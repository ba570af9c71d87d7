"""The contract of the object that gets a request's answer."""

from typing import Protocol, TypeVar

from dyorc.core.arrays import Array

T = TypeVar("T")


class Receiver(Protocol[T]):
    """Turns a request's outputs into its answer. Called on the event loop, except where said otherwise."""

    def take(self, arrays: list[Array], /) -> T:
        """Turns the outputs, in the order of the workflow's signature, into the answer.

        They may be views of memory that is reused once this returns. Called on a thread if they are large, and a second time if
        their holder has been lost meanwhile. Whatever it raises becomes the request's error.
        """
        ...

    def done(self, taken: T) -> None:
        """Takes the answer. Nothing follows it."""

    def failed(self, error: Exception) -> None:
        """Takes the error, if there is no answer. Nothing follows it."""
