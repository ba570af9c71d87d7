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


async def test_a_claimed_note_is_closed_to_lower_fences_even_for_what_was_sent_before(make_store: MakeStore) -> None:
    async with make_store() as first, make_store() as second:
        assert await first.note("deployed", b"1", fence=3)
        assert await second.claim_note("deployed", 4) == (4, b"1")
        assert not await first.note("deployed", b"late", fence=3)
        assert await second.note("deployed", b"2", fence=4)
        assert await second.claim_note("deployed", 2) == (4, b"2"), "this one comes too late"
        assert await first.note("deployed", b"anyone's"), "a writer without a fence"
        assert await first.note("other", b"", fence=1)
        assert await first.claim_note("unset", 1) == (1, None)
        assert await first.noted("deployed") == b"anyone's"
