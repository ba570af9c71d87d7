"""How a process logs: one form for DyOrc's lines and for those of libraries, on standard error, for people or as JSON.

Every process sets this up once, before it does anything else: the server, each cell, each replica. Level and form can be changed
later. Lines may be logged on any thread.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO, cast

import msgspec
import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

from dyorc.config import LogsConfig

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_PRIVATE = ("asyncio", "httpcore", "httpx")
"""Libraries whose less important lines show headers, addresses and selectors of ours, and nothing that helps an operator."""
_RAY = ("ray", "ray.serve")


class _SetUp(NamedTuple):
    config: LogsConfig
    process: Mapping[str, Any]


_current: list[_SetUp] = []
"""The setup of this process, since logging is global. Empty if the caller of this process has set up logging."""


_ours: dict[str, Any] = {}
_stream: list[TextIO] = []
_theirs: dict[str, Any] = {}
"""structlog's settings for our loggers and, if users' code has made any, for theirs."""


def set_up(config: LogsConfig, **process: Any) -> None:
    """Logs as the settings say, from now on.

    Args:
        process: Names this process in each of its lines, e.g. ``cell=2``.
    """
    _current[:] = [_SetUp(config, process)]
    logging.captureWarnings(True)
    for name in _PRIVATE:
        logging.getLogger(name).setLevel(logging.WARNING)
    _apply()


def change(config: LogsConfig) -> None:
    """Changes level and form. Does nothing in a process that has not called `set_up`, where logging is not ours."""
    if _current:
        _current[0] = _current[0]._replace(config=config)
        _apply()


def keep() -> None:
    """Keeps our lines as they are set up, if users' code has configured structlog, whose settings are those of the process.

    The loggers of users' code have what it has configured; ours have what `set_up` says.
    """
    theirs = structlog.get_config()
    if not _current or theirs["logger_factory"] in (_Writer, _make_logger):
        return
    _theirs.update(theirs)
    processors, wrapper = theirs["processors"], cast("type[Any]", _bind)
    structlog.configure(processors, wrapper_class=wrapper, logger_factory=_make_logger, cache_logger_on_first_use=False)


def write_to(stream: TextIO) -> None:
    """Writes our lines there, even if standard error changes later."""
    _stream[:] = [stream]


def adopt_ray() -> None:
    """Takes Ray's lines over from the handlers that it has installed."""
    for name in _RAY:
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        if _current:
            logger.handlers.clear()
            logger.propagate = True


def _make_logger(*args: Any) -> Any:
    is_ours = bool(args) and str(args[0]).partition(".")[0] == "dyorc"
    factory: Any = _Writer if is_ours else _theirs["logger_factory"]
    return factory(*args)


def _bind(logger: Any, processors: Any, context: Any) -> Any:
    if isinstance(logger, _Writer):
        return _ours["wrapper_class"](logger, processors=_ours["processors"], context=context)
    return _theirs["wrapper_class"](logger, processors=processors, context=context)


def _apply() -> None:
    config, process = _current[0]
    level = _LEVELS[config.level]
    ends = _json_ends() if config.format == "json" else _console_ends()
    begins: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _naming(process),
        structlog.processors.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.StackInfoRenderer(),
    ]
    _ours.update(processors=[*begins, *ends], wrapper_class=structlog.make_filtering_bound_logger(level))
    if not _theirs:
        structlog.configure(**_ours, logger_factory=_Writer)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=begins, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ends]
        )
    )
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level)


class _Writer:
    """Writes finished lines of one of our loggers. Standard error is looked up each time: a process may redirect it. Users' code
    may put anything there; see `write_to`.

    Args:
        name: The logger's.
    """

    def __init__(self, name: str = "dyorc") -> None:
        self.name = name

    def msg(self, line: str) -> None:
        """Writes one, in one piece: other processes may write there, too."""
        try:
            stream = _stream[0] if _stream else sys.stderr
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):  # the reader has gone; the server goes on
            pass

    debug = info = warning = error = critical = exception = msg


def _naming(process: Mapping[str, Any]) -> Processor:
    def name(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        return {**process, **event}

    return name


# For people


def _console_ends() -> list[Processor]:
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return [
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        # Not with local variables, as structlog's default: they may be keys, or tensors.
        structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=structlog.dev.plain_traceback),
    ]


# For programs


def _json_ends() -> list[Processor]:
    # Not with local variables: they may be keys, or tensors.
    return [structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)), _as_json]


def _as_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    now_s = time.time()
    iso = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    first = {name: event.pop(name, None) for name in ("level", "event", "logger")}
    line = {"time": iso, "time_s": round(now_s, 6), **first, **event}
    try:
        return msgspec.json.encode(line, enc_hook=repr).decode()
    except (TypeError, ValueError, OverflowError):  # such as keys that are no texts, or half of a surrogate pair
        return json.dumps(line, default=repr, skipkeys=True)
