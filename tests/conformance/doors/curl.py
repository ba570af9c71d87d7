"""curl: each kind of body and of connection that it has, to `/run`."""

import functools
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import PIL.Image

from tests.conformance.doors.doors import Addresses, Door, commands_missing, output_of, run_checks
from tests.conformance.rows import Row, expect

_NAME = "curl"
_COUNTED = {"words": ["to", "be"], "total": 2}
_JSON = ("-H", "content-type: application/json")


class _Curl:
    """Runs curl in a folder with a picture, `photo.png`."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        PIL.Image.new("RGB", (64, 48), "red").save(folder / "photo.png")

    def _ask(self, path: str, *arguments: str) -> str:
        command = ("curl", "--silent", "--show-error", "--max-time", "30", *arguments, self._url + path)
        return output_of(command, {}, self._folder).stdout

    def _status(self, path: str, *arguments: str) -> tuple[int, str]:
        body, _, status = self._ask(path, *arguments, "-w", "\n%{http_code}").rpartition("\n")
        return int(status), body

    def _has_counted(self, *arguments: str) -> None:
        expect(json.loads(self._ask("/run/words", *arguments)), _COUNTED, "the answer")

    def an_object(self) -> None:
        self._has_counted(*_JSON, "-d", '{"text": "To be"}')

    def without_a_type(self) -> None:
        """`-d` alone says that it sends a form."""
        self._has_counted("-d", '{"text": "To be"}')

    def a_form(self) -> None:
        self._has_counted("-F", "text=To be", "-F", 'options={"most": 2}')

    def a_coded_form(self) -> None:
        self._has_counted("--data-urlencode", "text=To be")

    def a_file_of_a_form(self) -> None:
        self._ask("/run/thumbnail", "-F", "image=@photo.png", "-F", "side=8", "-o", "small.png")
        self._expect_side(8)

    def a_file_alone(self) -> None:
        self._ask("/run/thumbnail?side=16", "-H", "content-type: image/png", "--data-binary", "@photo.png", "-o", "small.png")
        self._expect_side(16)

    def _expect_side(self, side: int) -> None:
        with PIL.Image.open(self._folder / "small.png") as image:
            expect(image.size, (side, side), "the size")

    def events(self) -> None:
        answer = self._ask("/run/spell", "-N", "-H", "accept: text/event-stream", *_JSON, "-d", '{"text": "to be"}')
        expect(answer, 'data: "to"\n\ndata: "be"\n\n', "the events")
        expect(json.loads(self._ask("/run/spell", *_JSON, "-d", '{"text": "to be"}')), ["to", "be"], "the list")

    def refused(self) -> None:
        status, body = self._status("/run/words", *_JSON, "-d", '{"text": "To", "options": {"most": 0}}')
        expect((status, json.loads(body)["code"]), (400, "invalid_input"), "the answer")
        for broken in ('{"text": ', "[1]", ""):
            expect(self._status("/run/words", *_JSON, "-d", broken)[0], 400, f"the status for {broken!r}")
        status, body = self._status("/run/nothing", *_JSON, "-d", "{}")
        expect((status, json.loads(body)["code"]), (404, "unknown_model"), "the answer")
        expect(self._status("/run/words")[0], 405, "the status of a GET")

    def failing_early(self) -> None:
        """`--fail` is a status of 22."""
        answer = output_of(
            ["curl", "-sS", "--fail", f"{self._url}/run/nothing", *_JSON, "-d", "{}"], {}, self._folder, checked=False
        )
        expect(answer.returncode, 22, "curl's status")

    def compressed_answer(self) -> None:
        text = " ".join(f"word{number}" for number in range(5000))
        (self._folder / "long.json").write_text(json.dumps({"text": text, "options": {"most": 5000}}))
        arguments = (*_JSON, "--data-binary", "@long.json")
        answer = self._ask("/run/words", "--compressed", *arguments)
        expect(json.loads(answer)["words"], text.split(), "the words")
        sizes = [
            int(self._ask("/run/words", *arguments, *accepted, "-o", "answer.bin", "-w", "%{size_download}"))
            for accepted in ((), ("-H", "accept-encoding: gzip"))
        ]
        expect(sizes[1] < sizes[0] / 2, True, f"whether {sizes[1]} bytes are less than half of {sizes[0]}")

    def compressed_body(self) -> None:
        (self._folder / "body.gz").write_bytes(gzip.compress(b'{"text": "To be"}'))
        self._has_counted(*_JSON, "-H", "content-encoding: gzip", "--data-binary", "@body.gz")

    def waits_before_the_body(self) -> None:
        """curl sends the body after `100 Continue`, or after a second without it."""
        answer = output_of(
            ["curl", "-sS", "-v", "--max-time", "30", "--expect100-timeout", "25", "-H", "expect: 100-continue", *_JSON,
             "-d", '{"text": "To be"}', f"{self._url}/run/words"], {}, self._folder,
        )  # fmt: skip
        expect("HTTP/1.1 100 Continue" in answer.stderr, True, "whether 100 Continue came")
        expect(json.loads(answer.stdout), _COUNTED, "the answer")

    def an_old_connection(self) -> None:
        self._has_counted("--http1.0", *_JSON, "-d", '{"text": "To be"}')
        events = self._ask("/run/spell", "--http1.0", "-H", "accept: text/event-stream", *_JSON, "-d", '{"text": "to be"}')
        expect(events, 'data: "to"\n\ndata: "be"\n\n', "the events, without chunks")

    def an_offer_of_http2(self) -> None:
        self._has_counted("--http2", *_JSON, "-d", '{"text": "To be"}')

    def chunks(self) -> None:
        (self._folder / "body.json").write_text('{"text": "To be"}')
        self._has_counted("-H", "transfer-encoding: chunked", *_JSON, "--data-binary", "@body.json")
        self._ask(
            "/run/thumbnail?side=4", "-H", "transfer-encoding: chunked", "-H", "content-type: image/png",
            "--data-binary", "@photo.png", "-o", "small.png",
        )  # fmt: skip
        self._expect_side(4)

    def an_upload(self) -> None:
        """A file of curl's input has no length."""
        shutil.copy(self._folder / "photo.png", self._folder / "upload.png")
        arguments = ("-X", "POST", "-T", "upload.png", "-H", "content-type: image/png", "-o", "small.png")
        self._ask("/run/thumbnail?side=5", *arguments)
        self._expect_side(5)


def _check(addresses: Addresses, folder: Path) -> Iterator[Row]:
    curl = _Curl(addresses.http, folder)
    checks = {
        "-d with a JSON type": curl.an_object,
        "-d without a type": curl.without_a_type,
        "-F with values": curl.a_form,
        "--data-urlencode": curl.a_coded_form,
        "-F with a file": curl.a_file_of_a_form,
        "--data-binary with a picture": curl.a_file_alone,
        "-T with a picture": curl.an_upload,
        "-N with events, and the same as a list": curl.events,
        "errors: their statuses and codes": curl.refused,
        "--fail": curl.failing_early,
        "--compressed": curl.compressed_answer,
        "a body in gzip": curl.compressed_body,
        "Expect: 100-continue": curl.waits_before_the_body,
        "--http1.0": curl.an_old_connection,
        "--http2, which is declined": curl.an_offer_of_http2,
        "chunked bodies": curl.chunks,
    }
    yield from run_checks(_NAME, checks)


DOOR = Door(_NAME, functools.partial(commands_missing, "curl"), _check)
