"""The load of the storm: clients that send without end, and know what every answer must be."""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np

from tests import oip
from tests.chaos.storm_process import REQUEST_TIMEOUT_S
from tests.chaos.storm_troupe import Troupe
from tests.workflows import checksummed

_SIZES = (50_001, 65_536, 131_073, 262_144, 524_289, checksummed.MAX_WORDS)
"""Words of a tensor: 0.2 to 4 MiB."""

_MAX_PARTS = 8
_RETRY_S = 0.02
_TIMEOUT_S = REQUEST_TIMEOUT_S + 10
_ALLOWED = (re.compile(r"\bno (room|memory)\b"), re.compile(r"replicas of program '.*' were lost"))
"""Texts that may come with status 503 instead of an answer: an arena is full, or three replicas died one after another."""


class _Request:
    """A request and its answer."""

    num_parts = 0

    def __init__(self, kind: str, seed: int, num_words: int) -> None:
        self.kind = kind
        self.seed = seed
        self.num_words = num_words
        parameters: dict[str, Any] = {"binary_data_output": True, "num_words": num_words}
        inputs: dict[str, oip.Array] = {"seed": np.array(seed, np.int64)}
        if kind == "sent":
            del parameters["num_words"]
            inputs = {"words": checksummed.made_words(seed, num_words), **inputs}
        elif kind == "paired":
            inputs["next_seed"] = np.array(seed + 1, np.int64)
        self.body = oip.binary_body(inputs, parameters=parameters)
        self.path = f"/v2/models/{kind}/infer"
        self.headers = dict(self.body.headers)

    def __str__(self) -> str:
        return f"{self.kind}(seed={self.seed}, num_words={self.num_words})"

    def fault_of(self, response: httpx.Response) -> str:
        """Returns what is wrong with an answer; empty if nothing is."""
        outputs = oip.read(response).outputs
        expect = checksummed.expected_pair if self.kind == "paired" else checksummed.expected_words
        expected = expect(self.seed, self.num_words)
        if self.kind == "made":
            words = outputs["output"]
            if words.shape != expected.shape:
                return f"shape {words.shape}, expected {expected.shape}"
            (wrong,) = np.nonzero(words != expected)
            if not len(wrong):
                return ""
            return f"{len(wrong)} words differ, {wrong[0]} to {wrong[-1]}: {words[wrong[:4]]}, expected {expected[wrong[:4]]}"
        found = {name: int(value) for name, value in outputs.items()}
        if found["is_right"] and found["checksum"] == checksummed.checksum(expected):
            return ""
        return f"{found}, expected checksum {checksummed.checksum(expected)}"


class _Recitation:
    """A streaming request and its answer: each part comes once, whatever happens meanwhile."""

    def __init__(self, seed: int, num_words: int, num_parts: int) -> None:
        self.seed = seed
        self.num_words = num_words // _MAX_PARTS
        self.num_parts = num_parts
        parameters = {"num_words": self.num_words, "num_parts": num_parts}
        self.body = oip.binary_body({"seed": np.array(seed, np.int64)}, parameters=parameters)
        self.path = "/v2/models/recited/infer_stream"
        self.headers = {**self.body.headers, "Accept": "application/vnd.dyorc.stream"}

    def __str__(self) -> str:
        return f"recited(seed={self.seed}, num_words={self.num_words}, num_parts={self.num_parts})"

    def fault_of(self, response: httpx.Response) -> str:
        """Returns what is wrong with an answer; empty if nothing is."""
        if text := self.failure_of(response):
            return text
        found = [np.frombuffer(raw, np.int32) for _, raw in oip.frames(response.content) if raw]
        if len(found) != self.num_parts:
            return f"{len(found)} parts"
        for at, expected in enumerate(checksummed.expected_parts(self.seed, self.num_words, self.num_parts)):
            if not np.array_equal(found[at], expected):
                return f"part {at} differs: {found[at][:4]}, expected {expected[:4]}"
        return ""

    def failure_of(self, response: httpx.Response) -> str:
        """Returns the error with which a stream ended; empty if it ended well."""
        return next((head["error"] for head, _ in oip.frames(response.content) if "error" in head), "")


class Load:
    """Runs clients that send while entered.

    Attributes:
        num_right: Right answers so far.
        num_parts: Parts in them, of streams.
        wrong: The details of each wrong answer; must stay empty.
        errors: Counts of other answers, by text without numbers.
        violations: Failures of requests that nothing excuses.
    """

    def __init__(self, troupe: Troupe, num_clients: int, seed: int) -> None:
        self._troupe = troupe
        self._changed = threading.Condition()
        self._is_paused = True
        self._is_over = False
        self._num_busy = 0
        self._num_seeds = 0
        self._threads = [
            threading.Thread(target=self._main, args=(random.Random(seed * 1000 + at),), name=f"storm-client-{at}")
            for at in range(num_clients)
        ]
        self.num_right = 0
        self.num_parts = 0
        self.wrong: list[str] = []
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []
        self.slowest_s = 0.0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def resume(self) -> None:
        """Lets clients send."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def pause(self) -> None:
        """Returns once no request is under way."""
        with self._changed:
            self._is_paused = True
            self._changed.wait_for(lambda: self._num_busy == 0)

    def wait_for_answers(self, num: int, timeout_s: float) -> bool:
        """Waits for `num` more right answers; False if they do not come in time, or a wrong one comes."""
        with self._changed:
            wanted = self.num_right + num
            return self._changed.wait_for(lambda: self.num_right >= wanted or bool(self.wrong), timeout_s) and not self.wrong

    def _main(self, chance: random.Random) -> None:
        with httpx.Client(base_url=self._troupe.url, timeout=_TIMEOUT_S, trust_env=False) as client:
            while self._begin():
                try:
                    self._send(client, chance)
                except Exception as error:
                    self._note(lambda error=error: self.violations.append(f"a client failed: {error!r}"))
                finally:
                    self._end()

    def _begin(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or not self._is_paused)
            if self._is_over:
                return False
            self._num_busy += 1
            return True

    def _end(self) -> None:
        with self._changed:
            self._num_busy -= 1
            self._changed.notify_all()

    def _note(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _send(self, client: httpx.Client, chance: random.Random) -> None:
        """Sends one request, again and again until it is answered."""
        with self._changed:
            seed, self._num_seeds = 2 * self._num_seeds, self._num_seeds + 1
        (kind,) = chance.choices(("checked", "made", "sent", "paired", "recited"), (4, 2, 2, 2, 3))
        (num_words,) = chance.choices(_SIZES, (6, 4, 4, 3, 2, 1))
        request = (
            _Recitation(seed, num_words, chance.randrange(1, _MAX_PARTS))
            if kind == "recited"
            else _Request(kind, seed, num_words)
        )
        while not self._is_over and not self._is_answered(client, request):
            time.sleep(_RETRY_S)

    def _is_answered(self, client: httpx.Client, request: "_Request | _Recitation") -> bool:
        troupe = self._troupe
        outage, was_up = troupe.outage, troupe.is_orchestrator_up
        started_s = time.monotonic()
        try:
            response = client.post(request.path, content=request.body.content, headers=request.headers)
        except httpx.TransportError as error:
            is_excused = not was_up or troupe.outage != outage
            self._failed(type(error).__name__, is_excused, f"{request}: {error!r} after {time.monotonic() - started_s:.1f} s")
            return False
        took_s = time.monotonic() - started_s
        if response.status_code != 200:
            text = response.json()["error"]
            is_excused = response.status_code == 503 and any(pattern.search(text) for pattern in _ALLOWED)
            kind = f"{response.status_code} {_without_numbers(text)}"
            self._failed(kind, is_excused, f"{request}: {response.status_code} {text} after {took_s:.1f} s")
            return False
        fault = request.fault_of(response)
        if fault and isinstance(request, _Recitation) and (text := request.failure_of(response)):
            is_excused = any(pattern.search(text) for pattern in _ALLOWED)
            self._failed(f"in a stream: {_without_numbers(text)}", is_excused, f"{request}: {text} after {took_s:.1f} s")
            return False
        if fault:
            self._note(lambda: self.wrong.append(f"{request}: {fault}"))
        else:
            self._note(lambda: self._right(took_s, request.num_parts))
        return True

    def _right(self, took_s: float, num_parts: int) -> None:
        self.num_right += 1
        self.num_parts += num_parts
        self.slowest_s = max(self.slowest_s, took_s)

    def _failed(self, kind: str, is_excused: bool, text: str) -> None:
        def note() -> None:
            self.errors[kind] += 1
            if not is_excused:
                self.violations.append(text)

        self._note(note)


def _without_numbers(text: str) -> str:
    """Returns a text without names and numbers, so that errors of one kind are counted together."""
    return re.sub(r"[0-9][0-9.]*", "N", re.sub(r"'[^']*'", "'N'", text))
