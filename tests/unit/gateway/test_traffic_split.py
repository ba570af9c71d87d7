"""Which of several versions a request gets."""

from msgspec.structs import replace

from dyorc.gateway.catalog import Catalog
from dyorc.models.offers import ModelKey, Offer, Offers, VersionTraffic
from dyorc.telemetry.metrics.readings import Readings
from tests.workflows import arithmetic

USERS = [str(user).encode() for user in range(1000)]


def catalog_of(sticky: str, **shares: float) -> Catalog:
    """Returns a catalog of the default version 1 and others with these shares."""
    first = Offer.of(ModelKey("sums", "1"), arithmetic.sums, traffic=VersionTraffic(sticky=sticky))
    others = [replace(first, version=name, share=share, sticky="", tally=f"sums@{name}") for name, share in shares.items()]
    return Catalog(Offers([first, *others]))


def versions(catalog: Catalog, header: bytes = b"x-user") -> dict[bytes, str]:
    """Returns the version of each user."""
    return {user: catalog.model("sums", headers=[(b"accept", b"*/*"), (header, user)]).version for user in USERS}


def test_a_user_has_one_version_in_every_process() -> None:
    first = versions(catalog_of("x-user", blue=0.25))
    assert versions(catalog_of("x-user", blue=0.25)) == first, "another process decides alike"
    num_blue = list(first.values()).count("blue")
    assert 180 < num_blue < 320, "a quarter, within five standard deviations"


def test_blanks_around_a_header_tell_nobody_apart() -> None:
    catalog = catalog_of("x-user", blue=0.5)
    bare = versions(catalog)
    for blanks in (b" ", b"\t", b" \t "):
        assert {user: catalog.model("sums", headers=[(b"x-user", user + blanks)]).version for user in USERS} == bare


def test_a_growing_share_keeps_the_users_that_it_has() -> None:
    blue = [{user for user, name in versions(catalog_of("x-user", blue=share)).items() if name == "blue"} for share in (0.1, 0.5)]
    assert blue[0] < blue[1]
    assert len(blue[0]) < 200 < 400 < len(blue[1])


def test_models_split_their_users_independently() -> None:
    offers = catalog_of("x-user", blue=0.5)
    other = [replace(model.offer, name="other") for model in offers.versions["sums"].values()]
    catalog = Catalog(Offers([*(model.offer for model in offers.versions["sums"].values()), *other]))
    both = [
        all(catalog.model(name, headers=[(b"x-user", user)]).version == "blue" for name in ("sums", "other")) for user in USERS
    ]
    assert 150 < both.count(True) < 350, "half of the half"


def test_a_request_without_the_header_is_drawn() -> None:
    catalog = catalog_of("x-user", blue=0.5)
    drawn = [catalog.model("sums", headers=[(b"x-other", b"same")]).version for _ in range(200)]
    assert set(drawn) == {"1", "blue"}
    assert {catalog.model("sums", version="blue", headers=[(b"x-user", user)]).version for user in USERS} == {"blue"}


def test_a_key_picks_the_version_by_its_tenant() -> None:
    catalog = catalog_of("key", blue=0.5)
    picked = {tenant: {catalog.model("sums", tenant=tenant).version for _ in range(5)} for tenant in map(str, range(50))}
    assert all(len(names) == 1 for names in picked.values())
    assert {name for names in picked.values() for name in names} == {"1", "blue"}


def test_it_is_counted_how_versions_were_chosen_across_changes_of_the_shares() -> None:
    first = catalog_of("x-user", blue=0.5)
    offers = Offers([model.offer for model in first.versions["sums"].values()])
    catalog = Catalog(offers)
    for _ in range(3):
        catalog.model("sums", headers=[(b"x-user", b"7")])
    offers.change([replace(offer, share=0.9) if offer.version == "blue" else offer for offer in offers.all])
    catalog.model("sums", headers=[(b"x-user", b"7")])
    catalog.model("sums")
    readings = Readings()
    catalog.measure(readings)
    (series,) = (values for values in readings.as_values().values())
    counts = {tuple(labels): number for labels, number in series}
    assert sum(number for (_, choice), number in counts.items() if choice == "sticky") == 4
    assert sum(number for (_, choice), number in counts.items() if choice == "random") == 1
