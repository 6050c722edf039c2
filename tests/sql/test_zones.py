"""What goes by a clock that is put forward and back is bounded widely and asked of each pair; all else is exact."""

import pytest

from penstock.errors import SqlError
from penstock.sql.bind.binder import bind_query
from penstock.sql.query import Column, Stream
from penstock.sql.script import parse_script
from penstock.sql.zones import ZONE, clock_shift

HOUR = 3_600_000_000


def streams(left, right):
    kinds = {"A": left, "B": right}
    return {
        name: Stream(name, (Column("k", "int"), Column("ts", kind)), "ts") for name, kind in kinds.items()
    }


def bound(window, left="timestamp", right="", zone="Europe/Oslo"):
    query = f"SELECT A.k FROM A, B WHERE A.k = B.k AND {window}"
    return bind_query("q", query, streams(left, right or left), zone=zone)


BY_THE_CLOCK = [
    ("timestamp", "B.ts BETWEEN A.ts AND A.ts + INTERVAL 1 DAY"),
    ("timestamp", "B.ts BETWEEN A.ts AND A.ts + INTERVAL 24 HOURS"),
    ("timestamp", "B.ts BETWEEN A.ts AND A.ts + (INTERVAL 13 HOURS + INTERVAL 11 HOURS)"),
    ("timestamp", "B.ts >= A.ts AND B.ts - A.ts <= INTERVAL 24 HOURS"),
    (
        "date",
        "B.ts BETWEEN A.ts AND A.ts + INTERVAL 24 HOURS + INTERVAL 0 HOURS - INTERVAL 1 HOUR + INTERVAL 1 HOUR",
    ),
]


@pytest.mark.parametrize(("kind", "window"), BY_THE_CLOCK)
def test_what_goes_by_the_clock_is_bounded_widely_and_asked_of_each_pair(kind, window):
    query = bound(window, kind)
    assert len(query.residual) == 1
    assert query.window.hi == 24 * HOUR + 1 + clock_shift("Europe/Oslo")
    assert query.window.lo == 0


@pytest.mark.parametrize(
    ("kind", "window"),
    [
        *(("timestamp_ntz", window) for _, window in BY_THE_CLOCK),
        ("timestamp", "B.ts BETWEEN A.ts AND A.ts + INTERVAL 23 HOURS"),
        ("date", "B.ts BETWEEN A.ts AND A.ts + INTERVAL 1 DAY"),
        ("timestamp", "A.ts = B.ts"),
    ],
)
def test_what_goes_by_time_is_a_window_and_nothing_else(kind, window):
    assert bound(window, kind).residual == ()


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_differences_of_wall_clock_readings_are_bounded_widely(kind):
    """Spark's timestampdiff translates both times to the session's wall clock, whatever the unit."""
    window = "timestampdiff(MINUTE, A.ts, B.ts) BETWEEN 0 AND 59"
    for zone, shift in (("Europe/Oslo", clock_shift("Europe/Oslo")), ("UTC", 0), ("+02:00", 0)):
        query = bound(window, kind, zone=zone)
        assert (query.window.lo, query.window.hi) == (1 - HOUR // 60 - shift, HOUR + shift)
        assert len(query.residual) == 2


def test_the_size_of_a_difference_goes_by_the_clock():
    window = "abs(A.ts - B.ts) <= INTERVAL 1 HOUR"
    for zone, shift in (("Europe/Oslo", clock_shift("Europe/Oslo")), ("UTC", 0)):
        query = bound(window, zone=zone)
        assert (query.window.lo, query.window.hi) == (-HOUR - shift, HOUR + 1 + shift)
        assert len(query.residual) == bool(shift)


def test_seconds_since_1970_go_by_no_clock():
    window = "CAST(B.ts AS LONG) - CAST(A.ts AS LONG) BETWEEN 0 AND 3599"
    assert bound(window).window == bound(window, zone="UTC").window
    assert bound("unix_micros(B.ts) - unix_micros(A.ts) BETWEEN 0 AND 5").residual == ()


@pytest.mark.parametrize("kind", ["timestamp_ntz", "date"])
def test_seconds_since_1970_of_a_wall_clock_reading_bound_nothing(kind):
    with pytest.raises(SqlError, match="q has no window"):
        bound("unix_timestamp(B.ts) - unix_timestamp(A.ts) BETWEEN 0 AND 5", kind)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "+02:00"])
@pytest.mark.parametrize(("kind", "window"), BY_THE_CLOCK)
def test_a_clock_that_never_moves_shows_time(kind, window, zone):
    query = bound(window, kind, zone=zone)
    assert query.residual == ()
    assert query.window.hi == 24 * HOUR + 1


def test_a_clock_that_has_skipped_a_day_may_be_off_by_one():
    assert clock_shift("Asia/Manila") > 24 * HOUR


SCRIPT = """
CREATE STREAM A (k INT, ts TIMESTAMP) WITH (format = 'parquet', path = '/a', time = 'ts');
CREATE STREAM B (k INT, ts DATE) WITH (format = 'parquet', path = '/b', time = 'ts');
CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1 day;
"""


def test_a_script_may_set_the_zone_anywhere():
    assert parse_script(SCRIPT).queries
    with pytest.raises(SqlError, match="Europe/Oslo") as error:
        parse_script(f"{SCRIPT}SET {ZONE} = 'Europe/Oslo';")
    assert "  CREATE QUERY q AS SELECT A.k FROM A, B" in str(error.value)
    assert parse_script(f"{SCRIPT}SET {ZONE} = 'Europe/Oslo';", zone="UTC").queries
