"""What a server could say of itself: a workflow with a decision, a loop and a fan-out, and requests with every kind of story."""

import functools
import math
import time
from typing import Any

WORKFLOW = "assistant"
SITE = "examples/assistant.py:41"
PROGRAMS = ("guard", "embed", "write", "check")
NUM_REQUESTS = 10_000
_CAUSES = ("compute", "queue", "cold", "wrong_guess", "taking", "moving", "reading")
_MS = 1_000


def graph() -> dict[str, Any]:
    """Returns the answer of ``GET /graph``."""

    def program(name: str, per_s: float, per_request: float = 1.0) -> dict[str, Any]:
        return {"id": name, "kind": "program", "name": name, "calls_per_s": per_s, "per_request": per_request}

    def edge(source: str, target: str, per_s: float, label: str = "", share: float = 1.0, guessed: float = 0.0) -> dict[str, Any]:
        return {"source": source, "target": target, "label": label, "share": share, "per_s": per_s, "guessed_share": guessed}

    def other(node: str, kind: str, name: str) -> dict[str, Any]:
        return {"id": node, "kind": kind, "name": name, "calls_per_s": 0.0, "per_request": 1.0}

    nodes = [
        *(other("input", "input", "input"), program("guard", 120.0), program("embed", 480.0, 4.0)),
        *(program("write", 150.0, 1.3), program("check", 150.0, 1.3)),
        *(
            other(SITE, "decision", SITE),
            other("assistant.py:52", "decision", "assistant.py:52"),
            other("answer", "answer", "answer"),
        ),
    ]
    edges = [
        *(
            edge("input", "guard", 120.0),
            edge("input", "embed", 480.0),
            edge("guard", SITE, 120.0),
            edge("embed", "write", 111.0),
        ),
        edge(SITE, "write", 111.0, "harmless", 0.925, 0.8),
        edge(SITE, "answer", 9.0, "harmful", 0.075),
        *(edge("write", "check", 150.0), edge("check", "assistant.py:52", 150.0)),
        edge("assistant.py:52", "write", 39.0, "again", 0.26, 0.1),
        edge("assistant.py:52", "answer", 111.0, "good", 0.74),
    ]
    return {"workflow": WORKFLOW, "num_requests": 51_204, "window_s": 60, "nodes": nodes, "edges": edges}


def live(at_s: float | None = None) -> dict[str, Any]:
    """Returns the answer of ``GET /live``."""
    at_s = time.time() if at_s is None else at_s
    wave = math.sin(at_s / 7)
    programs = {name: _program(name, index, wave) for index, name in enumerate(PROGRAMS)}
    workflow = {
        "requests_total": 51_204,
        "failed_total": 12,
        "refused_total": 48,
        "requests_per_s": 120 + 14 * wave,
        "failed_per_s": 0.0,
        "p50_ms": 38.2 + wave,
        "p99_ms": 187.0 + 20 * wave,
        "in_flight": 31,
    }
    return {
        "at_s": at_s,
        "workflows": {WORKFLOW: workflow, "summary": workflow | {"requests_total": 4, "requests_per_s": 0.0, "failed_total": 0}},
        "programs": programs,
        "tenants": {
            "search": {"in_flight": 21, "in_flight_bytes": 5_400_000},
            "shop": {"in_flight": 10, "in_flight_bytes": 120_000},
        },
        "jobs": {"num_running": 3, "max_running": 40, "num_bytes": 10_240, "max_bytes": 4 * 2**30, "is_store_down": False},
        "cells": [{"cell": 0, "pid": 4711, "in_flight": 17}, {"cell": 1, "pid": 4712, "in_flight": 14}],
        "link": {"num_batches": 10_000},
    }


def _program(name: str, index: int, wave: float) -> dict[str, Any]:
    base, each = 2.0 + 3 * index, 0.4 + 0.2 * index
    sizes = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    replicas = [
        {"id": f"{name}-{n}", "state": "ready", "node": "here", "pid": 5000 + n, "since_s": time.time() - 300, "load_s": 1.25}
        for n in range(2)
    ]
    return {
        "state": "ready",
        "replicas": [
            *replicas,
            {"id": f"{name}-2", "state": "parked", "node": "here", "pid": 6000, "since_s": time.time() - 30, "load_s": None},
        ],
        "num_wanted": 2,
        "num_parked_wanted": 1,
        "reason": "14.2 calls/s expected",
        "forecast_per_s": 130 + 8 * wave,
        "num_queued": 7 * index,
        "num_running": 24,
        "calls_total": 60_000 + index,
        "calls_per_s": 120.0 + 20 * wave,
        "batches_total": 9000,
        "batch_sizes": {str(size): 900 + 300 * (8 - abs(position - 5)) for position, size in enumerate(sizes)},
        "form_reasons": {"queue_emptied": 6200, "full": 1100, "held": 900, "guessed": 800},
        "latency_fit": {
            "base_ms": base,
            "per_call_ms": each,
            "points": [[size, base + each * size * (1 + 0.05 * (-1) ** size)] for size in sizes],
        },
        "num_guesses": 800,
        "num_committed": 690,
        "num_squashed": 110,
        "useful_s": 31.2,
        "wasted_s": 4.4,
    }


def history(query: dict[str, str]) -> dict[str, Any]:
    """Returns the answer of ``GET /history``."""
    window_s = int(query["window_s"])
    step_s = 1 if window_s <= 600 else 60
    now_s = int(time.time())
    times = range(now_s - window_s, now_s, step_s)
    past = [live(float(at_s)) for at_s in times]
    if name := query.get("program"):
        programs = [one["programs"][name] for one in past]
        columns = ("calls_per_s", "forecast_per_s", "num_queued", "num_running", "num_wanted")
        values = {column: [one[column] for one in programs] for column in columns}
        values |= {"num_warm": [2 for _ in past], "num_parked": [1 for _ in past], "num_starting": [0 for _ in past]}
    else:
        workflows = [one["workflows"][query["workflow"]] for one in past]
        columns = ("requests_per_s", "failed_per_s", "in_flight", "p50_ms", "p99_ms")
        values = {column: [one[column] for one in workflows] for column in columns}
    return {"from_s": times[0], "step_s": step_s, "values": values, "decisions": []}


def summary(number: int) -> dict[str, Any]:
    """Returns a request in short."""
    duration_ms = round(30 + 900 * (((number * 7919) % 1009) / 1009) ** 6, 3)
    failed = number % 97 == 0
    return {
        "request_id": f"req-{number:06d}",
        "number": number,
        "cell": number % 2,
        "workflow": WORKFLOW if number % 11 else "summary",
        "tenant": "search" if number % 3 else "shop",
        "transport": ("http", "grpc", "job")[number % 3],
        "outcome": "deadline_exceeded" if failed else "ok",
        "error": "the deadline passed" if failed else "",
        "ended_s": number,
        "arrived_s": time.time() - (NUM_REQUESTS - number) / 120,
        "duration_ms": duration_ms,
        "num_calls": 7,
        "num_guesses": number % 3,
        "trace_id": "",
        "cause": _CAUSES[number % 7] if duration_ms > 60 else "compute",
    }


@functools.cache
def _summaries() -> list[dict[str, Any]]:
    return [summary(number) for number in range(NUM_REQUESTS, 0, -1)]


def requests(query: dict[str, str]) -> dict[str, Any]:
    """Returns the answer of ``GET /requests``."""
    found = _summaries()
    if workflow := query.get("workflow"):
        found = [one for one in found if one["workflow"] == workflow]
    if beyond := query.get("beyond"):
        found = [one for one in found if one["number"] <= float(beyond)]
    if (outcome := query.get("outcome", "all")) != "all":
        found = [one for one in found if (one["outcome"] == "ok") == (outcome == "ok")]
    if query.get("order") == "slowest":
        found = sorted(found, key=lambda one: -one["duration_ms"])
    return {"requests": found[: int(query.get("limit", 50))], "num_kept": NUM_REQUESTS, "kept_bytes": 21 * 2**20}


def detail(request_id: str) -> dict[str, Any] | None:
    """Returns the answer of ``GET /requests/{request_id}``: a guess that was right, one that was wrong, a decision taken late."""
    if not request_id.startswith("req-"):
        return None
    call = {
        "sources": [],
        "decision": -1,
        "branch": "",
        "is_guess": False,
        "committed_ms": None,
        "was_cold": False,
        "bet": None,
        "outcome": "done",
        "error": "",
    }
    bet = {"probability": 0.93, "saves_ms": 41.0, "costs_others_ms": 6.2, "slows_others_ms": 1.5}
    calls = [
        call | {"call": 1, "program": "guard", "asked_ms": 1.2, "queued_ms": 1.2, "ended_ms": 96.0, "batches": ["a1"]},
        *(
            call | {"call": 2 + n, "program": "embed", "asked_ms": 1.3, "queued_ms": 1.3, "ended_ms": 31.0, "batches": ["a2"]}
            for n in range(4)
        ),
        call
        | {
            "call": 6,
            "program": "write",
            "sources": [2, 3, 4, 5],
            "decision": 0,
            "branch": "harmless",
            "asked_ms": 1.5,
            "queued_ms": 31.2,
            "ended_ms": 148.0,
            "is_guess": True,
            "committed_ms": 96.1,
            "bet": bet,
            "batches": ["a3"],
        },
        call
        | {
            "call": 7,
            "program": "check",
            "sources": [6],
            "asked_ms": 96.2,
            "queued_ms": 148.2,
            "ended_ms": 188.0,
            "batches": ["a4"],
        },
        call
        | {
            "call": 8,
            "program": "write",
            "decision": 1,
            "branch": "again",
            "asked_ms": 150.0,
            "queued_ms": 150.2,
            "ended_ms": 188.1,
            "is_guess": True,
            "bet": bet | {"probability": 0.26},
            "outcome": "squashed",
            "batches": ["a5"],
        },
    ]

    def batch(program: str, sent: float, started: float, ended: float, size: int, reason: str) -> dict[str, Any]:
        shared = [{"request_id": f"req-{4000 + n:06d}", "number": 4000 + n, "workflow": WORKFLOW} for n in range(size - 1)]
        return {
            "program": program,
            "replica": f"{program}-0",
            "reason": reason,
            "size": size,
            "num_guesses": size // 4,
            "requests": [{"request_id": request_id, "number": int(request_id[4:]), "workflow": WORKFLOW}, *shared],
            "sent_ms": sent,
            "started_ms": started,
            "ended_ms": ended,
            "gather_ms": 2.4,
            "infer_ms": ended - started - 3.0,
            "publish_ms": 0.6,
            "moves": [
                {"tier": "zmq", "num_bytes": 4_200_000, "took_ms": 2.2},
                {"tier": "message", "num_bytes": 512, "took_ms": 0.0},
            ],
            "outcome": "done",
        }

    return summary(int(request_id[4:])) | {
        "duration_ms": 190.0,
        "cause": "queue",
        "stages": {
            "reading_ms": 1.0,
            "queue_ms": 62.0,
            "moving_ms": 6.2,
            "compute_ms": 116.6,
            "engine_ms": 4.2,
            "wrong_guess_ms": 0.0,
        },
        "path": [
            {"stage": stage, "from_ms": start, "to_ms": end, "call": None}
            for stage, start, end in (
                ("reading", 0.0, 1.0),
                ("queue", 1.2, 63.2),
                ("compute", 64.0, 96.0),
                ("queue", 96.1, 98.0),
                ("compute", 98.0, 148.0),
                ("moving", 149.0, 151.4),
                ("compute", 151.4, 188.0),
                ("taking", 188.4, 189.9),
            )
        ],
        "diagnosis": [
            "62 ms of 190 ms: the call of 'guard' waited in the queue, 12 calls before it",
            "49 ms of 190 ms: 'write' computed, in a batch of 9 that took 1.7 times as long as a single call",
            "6 ms of 190 ms: 4.2 MB came to 'check' from another host",
        ],
        "calls": calls,
        "batches": {
            "a1": batch("guard", 63.2, 64.0, 95.8, 12, "full"),
            "a2": batch("embed", 1.5, 2.0, 30.9, 4, "queue_emptied"),
            "a3": batch("write", 31.4, 98.0, 147.8, 9, "held"),
            "a4": batch("check", 148.4, 149.0, 187.8, 3, "queue_emptied"),
            "a5": batch("write", 150.4, 152.0, 188.0, 1, "guessed"),
        },
        "decisions": [
            {
                "site": SITE,
                "sources": [1],
                "decision": -1,
                "branch": "",
                "opened_ms": 1.4,
                "decided_ms": 96.1,
                "followed": {"harmless": 0.93},
                "outcome": "harmless",
                "gains_ms": {"harmless": 66.6},
            },
            {
                "site": "assistant.py:52",
                "sources": [7],
                "decision": 0,
                "branch": "harmless",
                "opened_ms": 149.9,
                "decided_ms": 188.1,
                "followed": {"again": 0.26},
                "outcome": "good",
                "gains_ms": {"again": -3.1},
            },
        ],
        "parts": [{"index": 0, "sent_ms": 188.4, "taken_ms": 189.9}],
        "notes": [{"at_ms": 148.0, "text": "the result of write was kept on its replica"}],
    }


MODEL: dict[str, Any] = {
    "name": WORKFLOW,
    "versions": ["1"],
    "platform": "dyorc_workflow",
    "inputs": [{"name": "text", "datatype": "UINT8", "shape": [64]}, {"name": "image", "datatype": "FP32", "shape": [1, 8, 8]}],
    "outputs": [{"name": "scores", "datatype": "FP32", "shape": [10]}],
    "properties": {"repeatable": "true", "parameters": '[{"name": "num_pieces", "type": "int", "default": 4}]'},
}
SCALING: dict[str, Any] = {
    "programs": {
        name: {
            "num_warm": 2,
            "num_warming": 0,
            "num_parked": 1,
            "num_starting": 0,
            "num_warm_wanted": 2,
            "num_parked_wanted": 1,
            "min_warm": 0,
            "max_replicas": 4,
            "reason": "130 calls/s expected, 2 replicas take 180",
            "is_by_hand": False,
            "from_parked_s": 0.5,
            "from_cold_s": 3.0,
        }
        for name in PROGRAMS
    },
    "decisions": [
        {"at_s": 1_800_000_000.0, "program": "write", "num_warm": 2, "num_parked": 1, "reason": "130 calls/s expected"}
    ],
}
JOBS: dict[str, Any] = {
    "jobs": [
        {
            "id": "job-1f0c94f0a1b2",
            "model_name": WORKFLOW,
            "model_version": "1",
            "state": state,
            "created_s": 1_800_000_000.0,
            "started_s": 1_800_000_001.0,
            "finished_s": None if state == "running" else 1_800_000_003.5,
            "expires_s": None,
            "num_attempts": 1,
            "error": None,
        }
        for state in ("running", "succeeded")
    ],
    "next": None,
}
