"""Stores keep what servers have learned, under a name."""

from tests.integration.jobs.stored_jobs import MakeStore


async def test_a_note_outlives_the_server_that_wrote_it_and_the_last_one_counts(make_store: MakeStore) -> None:
    async with make_store() as store:
        assert await store.noted("traffic") is None
        await store.note("traffic", b"old")
        await store.note("traffic", b"\x00new")
        await store.note("other", b"")
    async with make_store() as again:
        assert (await again.noted("traffic"), await again.noted("other")) == (b"\x00new", b"")
