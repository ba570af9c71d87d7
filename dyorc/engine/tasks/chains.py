"""Chains of calls that hand on residents, and how a lost one is rebuilt at once.

A resident that was lost is made again from the beginning of its chain, where no resident goes in, or from the last one that is
still there. If that takes more than one call, and the program declares `rebuild`, it gets the inputs of all calls and makes the
resident in one.
"""

from collections.abc import Sequence

from dyorc.core.tensor import DType, TensorRef, blocks_of
from dyorc.engine.block_leases import BlockLeases
from dyorc.engine.model.futures import Argument, Future
from dyorc.engine.model.program_call import Call


def chain_to_rebuild(future: Future, producer: Call, leases: BlockLeases) -> list[Call]:
    """Returns the calls of a chain, from its beginning, that are made again at once; empty if it has to run alone."""
    if not producer.callee.can_rebuild or not leases.are_there(blocks_of(future.readable)):
        return []
    chain = [producer]
    call = producer
    while residents := _residents_of(call):
        argument = residents[0]
        before = argument.future.producer
        if len(residents) > 1 or not isinstance(before, Call) or not before.callee.options.is_repeatable:
            return []
        if len(chain) == 1 and leases.are_there(blocks_of((argument.future.tensors[argument.field],))):
            return []  # one call makes it again
        if argument.field != _only_resident(before):
            return []
        chain.append(before)
        call = before
    return chain[::-1] if len(chain) > 1 else []


def tensors_of(call: Call) -> list[Argument]:
    """Returns the inputs of a call that are no residents."""
    return [argument for argument, spec in zip(call.arguments, call.callee.signature.inputs, strict=True) if not spec.is_resident]


def _residents_of(call: Call) -> list[Argument]:
    return [argument for argument, spec in zip(call.arguments, call.callee.signature.inputs, strict=True) if spec.is_resident]


def _only_resident(call: Call) -> int:
    """Returns which output of a call is a resident; -1 if there are several."""
    fields = [field for field, spec in enumerate(call.callee.signature.outputs.tensors) if spec.is_resident]
    return fields[0] if len(fields) == 1 else -1


def with_residents(tensors: Sequence[TensorRef], residents: Sequence[TensorRef]) -> tuple[TensorRef, ...]:
    """Returns the results of a call with other residents in the places of those that were lost."""
    new = iter(residents)
    return tuple([next(new) if tensor.dtype is DType.RESIDENT else tensor for tensor in tensors])
