"""Plans as JSON: to keep them, to send them to ranks, and to read them.

The same plan is always the same text, in any order of its mappings, and the text carries a digest of its content, so that
a changed or torn file is refused. What a plan repeats is written once, in a table, and referred to by its index: layouts, placed
tensors, and the operations of nodes, which run once for each part of the work. Every step is a separate row:

    ["apply", operation, inputs, outputs, mesh, part]
    ["collective", kind, source, target, axis, part, algorithm]
    ["transfer", source, target, part]

A placement is `R`, `P` or `S0(8*4,6)`: dimension 0 is cut into four shards of 8 and one of 6.
"""

import hashlib
from pathlib import Path

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.core.plan_head import VERSION, check_header
from dyorc.errors import PlanError
from dyorc.planner.plan.document import Document, document_of, plan_of
from dyorc.planner.plan.plan import Plan
from dyorc.planner.whole_file import write_whole


def plan_to_json(plan: Plan) -> str:
    """Returns the plan as text: the same text for the same plan."""
    document = document_of(plan)
    document.digest = _digest(document)
    return _text(document)


def digest_of(plan: Plan) -> str:
    """Returns the digest of a plan's content: all but how long the planner searched."""
    return _digest(document_of(plan))


def plan_from_json(text: str) -> Plan:
    """Reads what `plan_to_json` wrote.

    Raises:
        PlanError: It is no plan, of another version, torn, or changed; says where, what was expected and what came.
    """
    check_header(text)
    try:
        document = msgspec.json.decode(text, type=Document)
    except DECODE_ERRORS as error:
        raise PlanError(f"this is no plan of version {VERSION}: {error}") from error
    digest = _digest(document)
    if digest != document.digest:
        raise PlanError(f"the plan was changed after it was written: expected digest {document.digest!r}, found {digest!r}")
    return plan_of(document)


def write_plan(plan: Plan, path: Path | str) -> None:
    """Writes a plan to a file. The file is either whole or not there: a plan that was there before stays until then.

    Raises:
        OSError: The file cannot be written.
    """
    write_whole(path, plan_to_json(plan))


def read_plan(path: Path | str) -> Plan:
    """Reads a plan from a file.

    Raises:
        OSError: The file cannot be read.
        PlanError: It holds no plan, or one that was changed; names the file.
    """
    try:
        return plan_from_json(Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: this is not a plan: byte {error.start} is no text") from error
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error


def _digest(document: Document) -> str:
    content = msgspec.structs.replace(document, digest="", provenance=msgspec.structs.replace(document.provenance, search_s=None))
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def _text(document: Document) -> str:
    """One row a line, so that people and `diff` can read it."""
    fields: list[str] = []
    for name in document.__struct_fields__:
        value = getattr(document, name)
        if isinstance(value, list) and value:
            rows = ",\n".join(msgspec.json.encode(row).decode() for row in value)  # pyright: ignore[reportUnknownVariableType]
            fields.append(f'"{name}":[\n{rows}]')
        else:
            fields.append(f'"{name}":{msgspec.json.encode(value).decode()}')
    return "{" + ",\n".join(fields) + "}\n"
