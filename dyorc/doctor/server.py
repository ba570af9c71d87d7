"""Checks of a running server: whether it answers, is ready and takes the key, its version, clock and certificate."""

import email.utils
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPResponse
from urllib.parse import urlsplit

from dyorc.doctor.finding import Finding, Subject, error, ok, warning
from dyorc.version import version

_TIMEOUT_S = 5.0
_MAX_CLOCK_DIFFERENCE_S = 2.0
_SOON_DAYS = 21
_UNAUTHORIZED, _FORBIDDEN = 401, 403


def check_server(subject: Subject) -> Iterator[Finding]:
    """Asks a server who it is, whether it is ready, and whether it takes the key."""
    if not subject.url:
        yield ok("no server is asked; --url http://host:port asks one")
        return
    sent_s = time.time()
    try:
        with _get(subject, "/v2") as answer:
            server = json.load(answer)
            date = answer.headers.get("date", "")
    except (OSError, ValueError, RecursionError) as problem:
        yield error(
            f"{subject.url} does not answer as a server of models does: {_reason(problem)}",
            "is it started, on that port, with http or https as in the address?",
        )
        return
    yield _version_finding(subject.url, server)
    yield _clock_finding(date, sent_s)
    yield _ready_finding(subject)
    yield _key_finding(subject)


def check_certificate(subject: Subject) -> Iterator[Finding]:
    """Says until when a server's certificate is valid."""
    parts = urlsplit(subject.url)
    if parts.scheme != "https" or parts.hostname is None:
        return
    try:
        with (
            socket.create_connection((parts.hostname, parts.port or 443), timeout=_TIMEOUT_S) as connection,
            _context(subject).wrap_socket(connection, server_hostname=parts.hostname) as secured,
        ):
            certificate = secured.getpeercert() or {}
    except OSError as problem:
        yield error(
            f"no trusted connection to {subject.url}: {_reason(problem)}",
            "name the authority that signed its certificate: --ca FILE",
        )
        return
    end_s = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    text = f"its certificate is valid until {datetime.fromtimestamp(end_s, UTC):%Y-%m-%d %H:%M} UTC"
    yield (
        warning(text, "renew it: the server reads it again by itself") if end_s - time.time() < _SOON_DAYS * 86_400 else ok(text)
    )


def _version_finding(url: str, server: dict[str, object]) -> Finding:
    name, theirs = server.get("name"), server.get("version")
    if name != "dyorc":
        return warning(
            f"{url} is {name} {theirs}", "the client, the page and these commands need a DyOrc server for all but plain inference"
        )
    if theirs != version():
        return warning(
            f"{url} is DyOrc {theirs}, and this is {version()}",
            "use the same version on both sides for commands such as `dyorc deploy`",
        )
    return ok(f"{url} is DyOrc {theirs}, as here")


def _clock_finding(date: str, sent_s: float) -> Finding:
    if not date:
        return ok("the server does not say what time it is")
    theirs_s = email.utils.parsedate_to_datetime(date).timestamp()
    now_s = time.time()
    difference_s = max(sent_s - 1 - theirs_s, theirs_s - now_s, 0.0)  # the header counts whole seconds
    if difference_s > _MAX_CLOCK_DIFFERENCE_S:
        return warning(
            f"its clock and this one differ by {difference_s:.0f} s",
            "set both clocks by NTP: deadlines of jobs and leases depend on them",
        )
    return ok("its clock and this one agree")


def _ready_finding(subject: Subject) -> Finding:
    try:
        _get(subject, "/v2/health/ready").close()
    except OSError as problem:
        return warning(f"it is not ready: {_reason(problem)}", "`dyorc status` says which program is missing; its log says why")
    return ok("it is ready")


def _key_finding(subject: Subject) -> Finding:
    try:
        _get(subject, "/v2/models/stats").close()
    except urllib.error.HTTPError as problem:
        if problem.code == _UNAUTHORIZED:
            return error(
                "it wants an API key, and takes this one not" if subject.key else "it wants an API key",
                "pass --key, or set DYORC_API_KEY",
            )
        if problem.code == _FORBIDDEN:
            return ok("it takes the key; its tenant may not see statistics")
        return warning(f"it answers {problem.code} to a question for statistics", "its log says why")
    except OSError as problem:
        return warning(f"it does not answer a question for statistics: {_reason(problem)}", "its log says why")
    return ok("it takes the key" if subject.key else "it asks for no key")


def _get(subject: Subject, path: str) -> HTTPResponse:
    headers = {"Authorization": f"Bearer {subject.key}"} if subject.key else {}
    request = urllib.request.Request(subject.url.rstrip("/") + path, headers=headers)
    return urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=_context(subject))


def _context(subject: Subject) -> ssl.SSLContext:
    ca = subject.ca
    if ca is None:
        return ssl.create_default_context()
    return ssl.create_default_context(capath=str(ca)) if os.path.isdir(ca) else ssl.create_default_context(cafile=str(ca))


def _reason(problem: Exception) -> str:
    inner = getattr(problem, "reason", problem)
    return getattr(inner, "verify_message", "") or getattr(inner, "strerror", None) or str(inner)
