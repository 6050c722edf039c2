"""A stream's roll: whatever the batches and horizons, it is the sorted times of all rows, in few pieces."""

import tempfile
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.state.files import open_files
from penstock.state.row_times import LONG_AGO, NOT_YET, Positions, Roll, plan_sealing, seal, write_times

times = st.lists(st.integers(-50, 50), max_size=12)


def sealed(files, roll, until, ended=()):
    """Seal up to a horizon, as a commit would make it true."""
    sealing = plan_sealing("S", roll, until, ended)
    piece = seal(files, sealing)
    gone = {*sealing.ended, *(sealing.absorbed if piece else ())}
    return Roll(
        until,
        (*(each for each in roll.pieces if each not in gone), *([piece] if piece else [])),
        tuple(each for each in roll.waiting if each.max_t >= until),
    )


@given(st.lists(st.tuples(times, st.integers(0, 30)), max_size=8), st.integers(1, 20), st.randoms())
def test_positions_are_those_of_the_sorted_times(batches, most, random):
    """Rows below the horizon do not come any more, as a watermark promises."""
    with tempfile.TemporaryDirectory() as folder:
        files, roll, counted = open_files(folder, sync=False), Roll(), []
        before, limits.MAX_ROWS_PER_PIECE = limits.MAX_ROWS_PER_PIECE, most
        try:
            for number, (batch, step) in enumerate(batches):
                mine = [t for t in batch if roll.horizon is None or t >= roll.horizon]
                if mine:
                    counted += mine
                    file = write_times(files, f"w{number}", np.array(mine), first=number, last=number)
                    roll = replace(roll, waiting=(*roll.waiting, file))
                roll = sealed(files, roll, (-50 if roll.horizon is None else roll.horizon) + step)
        finally:
            limits.MAX_ROWS_PER_PIECE = before
        done = sorted(t for t in counted if roll.horizon is not None and t < roll.horizon)
        order = Positions(files, roll)
        assert roll.end == len(done)
        assert order.times(0, len(done)).tolist() == done
        first = random.randint(-5, len(done) + 5)
        last = random.randint(first, len(done) + 9)
        padded = dict(enumerate(done))
        assert order.times(first, last).tolist() == [
            padded.get(place, LONG_AGO if place < 0 else NOT_YET) for place in range(first, last)
        ]
        for t in range(-52, 52, 7):
            assert order.before(t) == sum(each < t for each in done)
        for one, other in pairwise(roll.pieces):
            assert one.last + 1 == other.first
            assert one.max_t < other.min_t


def test_the_last_rows_reach_back_to_the_first_of_them_and_its_equals(tmp_path):
    """::

    times   3  8  8  15      horizon 20       the last three rows begin at 8: all later than 20 - 13
    """
    files = open_files(str(tmp_path), sync=False)
    roll = Roll(20, (write_times(files, "p", np.array([8, 3, 15, 8]), first=0, last=3),))
    order = Positions(files, roll)
    assert [order.span(20, rows) for rows in (1, 2, 3, 4, 5)] == [6, 13, 13, 18, None]


def test_positions_that_were_let_go_take_the_time_of_the_first_that_is_held(tmp_path):
    files = open_files(str(tmp_path), sync=False)
    piece = write_times(files, "p", np.array([40, 50]), first=7, last=8)
    order = Positions(files, Roll(60, (piece,)))
    assert order.times(5, 10).tolist() == [40, 40, 40, 50, NOT_YET]
    assert (order.before(0), order.before(45), order.before(60)) == (7, 8, 9)
    assert order.span(60, 5) == 21, "rows before 40 cannot be counted, and so are not kept"


def test_small_pieces_are_taken_along_so_that_there_are_never_many(tmp_path):
    files = open_files(str(tmp_path), sync=False)
    roll = Roll()
    for step in range(200):
        waiting = write_times(files, f"w{step}", np.array([step]), first=step, last=step)
        roll = sealed(files, replace(roll, waiting=(waiting,)), step + 1)
        assert len(roll.pieces) <= 1 + (step + 1).bit_length()
    assert roll.end == 200


def test_a_piece_that_no_window_reaches_goes_but_never_the_last(tmp_path):
    files = open_files(str(tmp_path), sync=False)
    pieces = [
        write_times(files, f"p{n}", np.arange(10 * n, 10 * n + 10), first=10 * n, last=10 * n + 9)
        for n in range(3)
    ]
    roll = sealed(files, Roll(30, tuple(pieces)), 40, ended=pieces)
    assert roll.pieces == (pieces[-1],)
    assert roll.end == 30
