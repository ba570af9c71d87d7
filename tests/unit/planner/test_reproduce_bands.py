"""What counts as equal: within the row's band, of a published figure; a trend that runs the wrong way does not."""

from random import Random

import pytest
from scipy.stats import spearmanr  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

from benchmarks.papers.bands import CLOSE, EXACT, FRACTIONS, MODELLED, REPEATED, SIMULATED, Band
from benchmarks.papers.markdown import counts_of, to_markdown
from benchmarks.papers.rows import fact_row, number_row, points_of, ratio_row, sign_row
from benchmarks.papers.study import Study, unjudged
from benchmarks.papers.table import COMPARED, Kind, Relation, Row, Table, table_from_json
from benchmarks.papers.trends import rank_correlation, trend_relation, trends

_GPUS = (8, 16, 32, 64)


@pytest.mark.parametrize("band", [CLOSE, MODELLED, SIMULATED, REPEATED, FRACTIONS])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_number_outside_of_its_band_is_not_equal(band: Band, side: int) -> None:
    inside, outside = (
        number_row("figure 1", "seconds", 2.0, 2.0 * (1 + side * band.ratio * part), band=band) for part in (0.99, 1.01)
    )
    assert (inside.relation, outside.relation) == (Relation.EQUAL, Relation.DIFFERS)
    assert inside.band == outside.band == band.text
    ratio = ratio_row("figure 1", "speed", 4.0, 4.0 * (1 + side * band.ratio * 1.01), band=band)
    assert ratio.relation is Relation.SAME_SIGN


def test_differences_have_their_sides_around_0() -> None:
    assert ratio_row("abstract", "per cent", 22.0, 0.5, neutral=0.0).relation is Relation.SAME_SIGN
    assert ratio_row("abstract", "per cent", 22.0, -0.5, neutral=0.0).relation is Relation.DIFFERS


@pytest.mark.parametrize("relation", COMPARED)
def test_a_row_that_compares_states_its_band(relation: Relation) -> None:
    with pytest.raises(ValueError, match="figure 1, seconds: a row that compares states its band"):
        Row(figure="figure 1", what="seconds", published="1", ours="1", relation=relation)


@pytest.mark.parametrize("kind", [Kind.FITTED, Kind.OWN])
def test_a_fit_and_a_reference_of_our_own_are_never_equal(kind: Kind) -> None:
    with pytest.raises(ValueError, match=f"a figure that is {kind} is not equal"):
        Row(figure="figure 1", what="a", published="1", ours="1", relation=Relation.EQUAL, band="exact", kind=kind)
    rows = (
        number_row("figure 1", "a", 1.0, 1.0, kind=kind),
        ratio_row("figure 1", "b", 1.0, 1.0, kind=kind),
        fact_row("figure 1", "c", "1", "1", is_so=True, band=EXACT, kind=kind),
        *trends([number_row("f", str(x), x, x, kind=kind, point=point) for x, point in points_of("s", _GPUS).items()]),
    )
    assert [row.relation for row in rows] == [Relation.AGREES] * 4
    table = Table(name="x", title="X (Y'24)", about="How.", rows=rows, took_s=1.0)
    assert (table.count(Relation.EQUAL), table.num_compared(kind), table.num_compared(Kind.PUBLISHED)) == (0, 4, 0)
    assert "(4 agree)" in counts_of(table)
    assert f"| {kind}: agrees | ± 5% |" in to_markdown([table])


def test_what_is_published_does_not_merely_agree() -> None:
    with pytest.raises(ValueError, match="published is not agrees"):
        Row(figure="figure 1", what="a", published="1", ours="1", relation=Relation.AGREES, band="exact")


def test_a_side_alone_is_never_equal() -> None:
    assert sign_row("figure 1", "a", "above 1", "1.5", is_so=True).relation is Relation.SAME_SIGN
    assert sign_row("figure 1", "a", "above 1", "0.5", is_so=False).relation is Relation.DIFFERS


def _series(published: tuple[float, ...], ours: tuple[float, ...]) -> list[Row]:
    points = points_of("seconds of data parallelism by GPUs", _GPUS)
    return [
        number_row("figure 13", f"{x} GPUs: seconds", theirs, here, band=SIMULATED, point=points[x])
        for x, theirs, here in zip(_GPUS, published, ours, strict=True)
    ]


def test_a_wrong_trend_fails_though_all_points_are_within_their_bands() -> None:
    rows = _series((1.0, 1.05, 1.1, 1.2), (1.1, 1.1, 1.1, 1.1))
    assert [row.relation for row in rows] == [Relation.EQUAL] * 4
    (trend,) = trends(rows)
    assert trend.relation is Relation.DIFFERS
    assert (trend.figure, trend.published) == ("figure 13", "1, 1.05, 1.1, 1.2 (x 1.20)")
    table = Study(name="x", title="X (Y'24)", about="How.", parts={"figure 13": rows}).table()
    assert table.rows == (*rows, trend)
    assert table_from_json(table.to_json()) == table


@pytest.mark.parametrize(
    ("published", "ours", "relation"),
    [
        ((1.0, 2.0, 3.0, 4.0), (10.0, 20.0, 30.0, 39.0), Relation.EQUAL),
        ((1.0, 2.0, 3.0, 4.0), (1.0, 1.5, 2.0, 2.5), Relation.SAME_SIGN),
        ((1.0, 2.0, 3.0, 4.0), (4.0, 3.0, 2.0, 1.0), Relation.DIFFERS),
        ((1.0, 2.0, 3.0, 4.0), (1.0, 6.0, 0.5, 4.0), Relation.DIFFERS),
        ((1.0, 2.0, 3.0, 4.0), (2.0, 2.0, 2.0, 2.0), Relation.DIFFERS),
        ((1.0, 1.01, 1.02, 1.0), (5.0, 5.0, 5.0, 5.0), Relation.EQUAL),
        ((1.0, 1.5, 2.0, 1.02), (1.0, 1.0, 1.0, 1.0), Relation.DIFFERS),
        ((1.0, 0.8, 0.6, 0.5), (1.0, 0.8, 0.6, 0.51), Relation.EQUAL),
    ],
)
def test_trends_run_the_same_way_in_the_same_order_and_about_as_far(
    published: tuple[float, ...], ours: tuple[float, ...], relation: Relation
) -> None:
    assert trend_relation(published, ours, Kind.PUBLISHED) is relation
    assert trend_relation(published, ours, Kind.OWN) is (Relation.AGREES if relation is Relation.EQUAL else relation)


def test_rank_correlation_is_scipy_s() -> None:
    random = Random(0)
    for length in (2, 3, 7, 20):
        one, other = ([float(random.randrange(5)) for _ in range(length)] for _ in range(2))
        one[0], one[1], other[0], other[1] = 0.0, 1.0, 2.0, 1.0
        assert rank_correlation(one, other) == pytest.approx(float(spearmanr(one, other).statistic))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportAttributeAccessIssue]
    assert rank_correlation([1.0, 2.0], [3.0, 3.0]) is None


def test_a_trend_needs_all_of_its_points_and_none_that_is_not_judged() -> None:
    rows = _series((1.0, 1.1, 1.2, 1.3), (1.0, 1.1, 1.2, 1.3))
    assert list(trends(rows[:3])) == []
    assert list(trends([*rows[:3], *(row for row in unjudged(rows[3:], "more") if isinstance(row, Row))])) == []


def test_a_trend_is_published_if_one_of_its_points_is() -> None:
    first, *others = _series((1.0, 1.1, 1.2, 1.3), (1.0, 1.1, 1.2, 1.3))
    assert first.point is not None
    fitted = number_row("figure 13", "8 GPUs: seconds", 1.0, 1.0, kind=Kind.FITTED, point=first.point)
    assert [trend.kind for trend in trends([fitted, *others])] == [Kind.PUBLISHED]
