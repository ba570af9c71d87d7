"""Puts virtual clocks, threads, randomness and process numbers under Python's own modules.

`install` comes before anything of `dyorc` is imported, since some modules take a clock when they are defined. Outside of a
world the real functions are called. There is no real thread in this process, so a lock held between two turns is a virtual one.
"""

import concurrent.futures.thread
import fcntl
import os
import queue
import random
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

from tests.whole_server.world import READ_NS, ProcessState, VirtualProcess, VirtualThread, current_thread


class VirtualLock:
    """A `threading.Lock` of virtual threads; the longest waiting one gets it.

    Virtual processes share the locks of modules, which real ones do not: what a process holds when it dies is released.
    """

    def __init__(self) -> None:
        self._is_locked = False
        self._holder: VirtualProcess | None = None
        self._waiting: deque[VirtualThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See `threading.Lock.acquire`."""
        thread = current_thread()
        if thread is not None:
            thread.world.maybe_give_way()
        if not self._is_locked:
            self._is_locked = True
            self._hold(thread)
            return True
        if not blocking or timeout == 0:
            return False
        if thread is None:
            raise RuntimeError("a lock is waited for outside of a world")
        self._waiting.append(thread)
        if not thread.world.park(None if timeout < 0 else thread.world.now_ns + int(timeout * 1e9)):
            self._waiting.remove(thread)
            return False
        return True

    __enter__ = acquire

    def _hold(self, thread: VirtualThread | None) -> None:
        if self._holder is not None:
            self._holder.locks.pop(self, None)
        self._holder = None if thread is None else thread.process
        if self._holder is not None:
            self._holder.locks[self] = None

    def release(self) -> None:
        """See `threading.Lock.release`."""
        if not self._is_locked:
            raise RuntimeError("release unlocked lock")
        while self._waiting:
            thread = self._waiting.popleft()
            if thread.process.state is not ProcessState.DEAD and thread.world.wake(thread):
                self._hold(thread)
                return  # it has the lock now
        self._is_locked = False
        self._hold(None)

    def locked(self) -> bool:
        """See `threading.Lock.locked`."""
        return self._is_locked

    def __exit__(self, *_: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.__init__()


class VirtualRLock:
    """A `threading.RLock` of virtual threads."""

    def __init__(self) -> None:
        self._lock = VirtualLock()
        self._owner: VirtualThread | None = None
        self._num_holds = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See `threading.RLock`."""
        thread = current_thread()
        if self._num_holds and self._owner is thread:
            self._num_holds += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._num_holds = thread, 1
        return True

    __enter__ = acquire

    def release(self) -> None:
        """See `threading.RLock`."""
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._num_holds -= 1
        if not self._num_holds:
            self._owner = None
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.release()

    # What `threading.Condition` needs

    def _is_owned(self) -> bool:
        return self._num_holds > 0 and self._owner is current_thread()

    def _release_save(self) -> int:
        num_holds, self._num_holds, self._owner = self._num_holds, 0, None
        self._lock.release()
        return num_holds

    def _acquire_restore(self, num_holds: int) -> None:
        self._lock.acquire()
        self._owner, self._num_holds = current_thread(), num_holds

    def _at_fork_reinit(self) -> None:
        self.__init__()


class VirtualQueue:
    """A `queue.SimpleQueue` of virtual threads."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[VirtualThread] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """See `queue.SimpleQueue.put`."""
        self._items.append(item)
        while self._waiting:
            thread = self._waiting.popleft()
            if thread.world.wake(thread):
                break
        thread = current_thread()
        if thread is not None:
            thread.world.maybe_give_way()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """See `queue.SimpleQueue.get`."""
        thread = current_thread()
        until_ns = None if timeout is None or thread is None else thread.world.now_ns + int(timeout * 1e9)
        while not self._items:
            if not block or thread is None:
                raise queue.Empty
            self._waiting.append(thread)
            if not thread.world.park(until_ns):
                self._waiting.remove(thread)
                raise queue.Empty
        return self._items.popleft()

    def put_nowait(self, item: Any) -> None:
        """See `queue.SimpleQueue.put_nowait`."""
        self.put(item)

    def get_nowait(self) -> Any:
        """See `queue.SimpleQueue.get_nowait`."""
        return self.get(block=False)

    def empty(self) -> bool:
        """See `queue.SimpleQueue.empty`."""
        return not self._items

    def qsize(self) -> int:
        """See `queue.SimpleQueue.qsize`."""
        return len(self._items)


class ThreadFacade:
    """A `threading.Thread` whose code runs on a virtual thread."""

    def __init__(
        self, group: None = None, target: Callable[..., object] | None = None, name: str | None = None,
        args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, *, daemon: bool | None = None,
    ) -> None:  # fmt: skip
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self.ident: int | None = None
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self._thread: VirtualThread | None = None
        self._joining: list[VirtualThread] = []

    def start(self) -> None:
        """See `threading.Thread.start`."""
        here = current_thread()
        if here is None:
            raise RuntimeError(f"thread {self.name!r} is started outside of a world")
        self._thread = here.world.start_thread(self.name, self._main)
        self._thread.facade = self
        self.ident = self._thread.ident

    def run(self) -> None:
        """See `threading.Thread.run`."""
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def _main(self) -> None:
        thread = self._thread
        assert thread is not None
        try:
            self.run()
        except SystemExit:
            pass
        except Exception as error:
            thread.world.log("a thread fails", thread=self.name, error=f"{type(error).__name__}: {error}")
        thread.is_over = True
        for waiting in self._joining:
            thread.world.wake(waiting)

    def is_alive(self) -> bool:
        """See `threading.Thread.is_alive`."""
        return self._thread is not None and not self._thread.is_over

    def join(self, timeout: float | None = None) -> None:
        """See `threading.Thread.join`."""
        here = current_thread()
        if here is None or not self.is_alive():
            return
        until_ns = None if timeout is None else here.world.now_ns + int(timeout * 1e9)
        while self.is_alive():
            self._joining.append(here)
            if not here.world.park(until_ns):
                return

    @property
    def native_id(self) -> int | None:
        """See `threading.Thread.native_id`."""
        return self.ident


class _VirtualLocal:
    """A `threading.local` of virtual threads."""

    def __init__(self) -> None:
        object.__setattr__(self, "_outside", {})

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "_outside", {})
        object.__setattr__(made, "_arguments", (args, kwargs))
        return made

    def _values(self) -> dict[str, Any]:
        thread = current_thread()
        if thread is None:
            return object.__getattribute__(self, "_outside")
        if id(self) not in thread.values:
            thread.values[id(self)] = {}
            if type(self).__init__ is not _VirtualLocal.__init__:
                args, kwargs = object.__getattribute__(self, "_arguments")
                type(self).__init__(self, *args, **kwargs)
        return thread.values[id(self)]

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values()[name] = value

    def __delattr__(self, name: str) -> None:
        del self._values()[name]


class FileLocks:
    """Remembers which process has locked which file, and unlocks them when it is dead, as the kernel does."""

    def __init__(self) -> None:
        self._flock = fcntl.flock

    def flock(self, descriptor: Any, operation: int) -> None:
        """See `fcntl.flock`."""
        self._flock(descriptor, operation)
        thread = current_thread()
        if thread is not None and operation & fcntl.LOCK_EX:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            status = os.fstat(number)
            thread.process.on_end.append(lambda: self._unlock(number, (status.st_dev, status.st_ino)))

    def _unlock(self, number: int, file: tuple[int, int]) -> None:
        try:
            status = os.fstat(number)
        except OSError:
            return
        if (status.st_dev, status.st_ino) == file:
            self._flock(number, fcntl.LOCK_UN)


def _of_thread(real: Callable[[], Any], virtual: Callable[[VirtualThread], Any]) -> Callable[[], Any]:
    """Returns what asks the running thread, outside of a world the real one."""

    def read() -> Any:
        thread = current_thread()
        return real() if thread is None else virtual(thread)

    return read


def _clock(name: str) -> Callable[[], Any]:
    """Returns a clock in place of that of `time`."""
    real = getattr(time, name)
    is_in_ns, is_wall = name.endswith("_ns"), name.startswith("time")

    def read() -> Any:
        thread = current_thread()
        if thread is None:
            return real()
        world = thread.world
        world.now_ns += READ_NS
        now_ns = world.now_ns + world.wall_shift_ns if is_wall else world.now_ns
        return now_ns if is_in_ns else now_ns / 1e9

    return read


def _sleep(seconds: float, _real: Callable[[float], None] = time.sleep) -> None:
    thread = current_thread()
    if thread is None:
        _real(seconds)
    else:
        thread.world.park(thread.world.now_ns + int(seconds * 1e9))


class _SeededRandom(random.Random):
    """A `random.Random` that takes its seed from `os.urandom` where it gets none, as the real one, which does not ask Python."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        """See `random.Random.seed`."""
        super().seed(int.from_bytes(os.urandom(16)) if a is None else a, version)


def seed_randomness(seed: int) -> None:
    """Makes `random`, `secrets` and `os.urandom` follow from a seed."""
    random.seed(f"module {seed}")
    drawn = random.Random(f"urandom {seed}")
    os.urandom = drawn.randbytes
    random._urandom = drawn.randbytes  # type: ignore[attr-defined]  # what `secrets` reads


def install() -> None:
    """Patches this process for good."""
    seed_randomness(0)
    for name in ("time", "monotonic", "perf_counter", "thread_time", "process_time"):
        setattr(time, name, _clock(name))
        setattr(time, f"{name}_ns", _clock(f"{name}_ns"))
    time.sleep = _sleep
    threads: Any = threading
    main, real_ident, real_current = threading.current_thread(), threading.get_ident, threading.current_thread
    threads.Lock = threads._allocate_lock = VirtualLock
    threads._CRLock = VirtualRLock
    threads.get_ident = threads.get_native_id = _of_thread(real_ident, lambda thread: thread.ident)
    threads.current_thread = _of_thread(real_current, lambda thread: thread.facade or _facade_of(thread))
    threads.main_thread = lambda: main
    threads.Thread, threads.local = ThreadFacade, _VirtualLocal
    queues: Any = queue
    queues.SimpleQueue = VirtualQueue
    executors: Any = concurrent.futures.thread
    executors._global_shutdown_lock = VirtualLock()
    randoms: Any = random
    names: Any = tempfile
    randoms.Random = names._Random = _SeededRandom
    os.getpid = _of_thread(os.getpid, lambda thread: thread.process.pid)
    fcntl.flock = FileLocks().flock


def _facade_of(thread: VirtualThread) -> ThreadFacade:
    facade = thread.facade = ThreadFacade(name=thread.name)
    facade._thread, facade.ident = thread, thread.ident
    return facade
