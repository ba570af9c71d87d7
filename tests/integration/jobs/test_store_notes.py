"""Stores keep what servers have learned, under a name."""

from dyorc.store.base import NoteFence
from tests.integration.jobs.stored_jobs import MakeStore


async def test_a_note_outlives_the_server_that_wrote_it_and_the_last_one_counts(make_store: MakeStore) -> None:
    async with make_store() as store:
        assert await store.noted("traffic") is None
        await store.note("traffic", b"old")
        await store.note("traffic", b"\x00new")
        await store.note("other", b"")
    async with make_store() as again:
        assert (await again.noted("traffic"), await again.noted("other")) == (b"\x00new", b"")


async def test_a_scope_that_is_claimed_refuses_notes_with_lower_fences(make_store: MakeStore) -> None:
    first, second = NoteFence("shop", 1), NoteFence("shop", 2)
    async with make_store() as store, make_store() as other:
        assert await store.note("deployed", b"1", first)
        assert await other.claim_notes(second) == 2
        assert not await store.note("deployed", b"2", first)
        assert await store.claim_notes(first) == 2, "the highest"
        assert await store.noted("deployed") == b"1"
        assert await store.note("deployed", b"3", NoteFence("bank", 1)), "another scope"
        assert await other.note("deployed", b"4", second)
        assert await store.note("deployed", b"5"), "it has no fence"
    async with make_store() as again:
        assert not await again.note("deployed", b"6", first), "it outlives the server"
        assert await again.noted("deployed") == b"5"
