"""Whether models can be served now."""

from collections.abc import Mapping
from typing import Any

from dyorc.errors import NotReadyError, ScaledToZeroError
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.tenants import Tenant
from dyorc.models.status import ProgramState, ProgramStatus, StatusBoard


def require_ready(status: StatusBoard, model: Model | None = None) -> None:
    """Checks that a model is ready (`is_ready`); without a model, that the server is.

    Raises:
        NotReadyError: If not; says what is missing, and what each program without a replica is doing.
    """
    if model is None and status.is_ready:
        return
    complaints = [] if model is not None else list(status.lacking.values())
    programs = _programs_of(status, model)
    complaints += [
        _describe(program) for program in programs if not (program.is_as_wanted if model is None else program.can_serve)
    ]
    if complaints:
        raise NotReadyError("not ready: " + "; ".join(complaints))


def is_ready(status: StatusBoard, model: Model) -> bool:
    """Returns whether every program that a model may call can be reached and has a replica, or gets one when it is called."""
    return all(program.can_serve for program in _programs_of(status, model))


def repository_index(
    catalog: Catalog, status: StatusBoard, deployed: Mapping[str, Any], tenant: Tenant, *, only_ready: bool
) -> list[dict[str, Any]]:
    """Returns the models that a tenant may use, as the protocol's repository index: name, version, state, reason.

    Args:
        deployed: All versions of each model, loaded or not (`Deployments.report`).
    """
    names = sorted(filter(tenant.may_use, catalog.models))
    entries = [_entry_of(status, model) for name in names for model in catalog.versions[name].values()]
    entries += [
        {"name": name, "version": version, "state": "UNAVAILABLE", "reason": "unloaded"}
        for name, history in deployed.items()
        if tenant.may_use(name)
        for version, deployment in history["versions"].items()
        if not deployment["is_loaded"]
    ]
    return [entry for entry in entries if entry["state"] == "READY" or not only_ready]


def _entry_of(status: StatusBoard, model: Model) -> dict[str, Any]:
    waiting = [program for program in _programs_of(status, model) if not program.can_serve]
    is_failing = any(
        program.unreachable or program.state in (ProgramState.FAILING, ProgramState.OFF, ProgramState.STARVED)
        for program in waiting
    )
    state = "READY" if not waiting else "UNAVAILABLE" if is_failing else "LOADING"
    return {
        "name": model.name,
        "version": model.version,
        "state": state,
        "reason": "; ".join(_describe(program) for program in waiting),
    }


def _programs_of(status: StatusBoard, model: Model | None) -> list[ProgramStatus]:
    if model is None:
        return [program for program in status.programs.values() if program.is_needed]
    known = status.board_of(model.key).programs
    return [known.get(program.name) or ProgramStatus(program.name, program.num_replicas) for program in model.programs]


def _describe(program: ProgramStatus) -> str:
    if program.unreachable:
        return f"program {program.name!r} cannot be reached: {program.unreachable}"
    if program.state is ProgramState.OFF:
        return str(ScaledToZeroError.of(program.name))
    return f"program {program.name!r} is {program.state.value}{': ' + program.error if program.error else ''}"
