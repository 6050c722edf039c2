"""The sensors of the demo: what comes when, what is found of it, and what a fixed window would find."""

import io

import numpy as np
import pyarrow as pa
from rich.console import Console

from penstock.cli.demos.sensors import (
    SCRAMBLING,
    SENSORS,
    SensorArrivals,
    closing,
    mean_rows,
    rows_kept,
    script_text,
    step_table,
    window_finds,
)
from penstock.kernels.order_watch import Order
from penstock.testing import Session

SMALL = SensorArrivals(steps=6, epochs=100, congested=(1, 3))


def test_every_sensor_sends_every_epoch_once_and_as_far_out_of_order_as_it_says():
    for number in range(len(SENSORS)):
        epochs = np.concatenate(SMALL.of(number))
        assert sorted(epochs.tolist()) == list(range(600))
        assert 0 < Order.of(epochs).scrambling <= SCRAMBLING


def test_the_congested_sensor_comes_at_once_in_the_end():
    assert [each.size for each in SMALL.of(1)] == [100, 0, 0, 300, 100, 100]
    assert [each.size for each in SMALL.of(0)] == [100] * 6


def test_buffers_grow_in_the_congestion_and_shrink_after_it(tmp_path):
    moments = []
    with Session(script_text(tmp_path)) as session:
        for step in range(SMALL.steps):
            for number, name in enumerate(SENSORS):
                epochs = SMALL.of(number)[step]
                if epochs.size:
                    session.send(name, pa.table({"epoch": epochs, "v": epochs.astype(float)}))
            session.turn()
            moments.append(session.status())
    others = [rows_kept(each)[0] for each in moments]
    assert others[2] > others[1] > others[0]
    assert others[2] > 2 * others[-1]
    query = moments[-1].queries[0]
    assert (query.results, query.accuracy) == (600, 1.0)
    fixed = window_finds(SMALL, mean_rows(moments))
    assert fixed < 600
    assert f"would have found {fixed:,}" in closing(moments, SMALL, 1.0)
    out = Console(file=io.StringIO(), width=150)
    out.print(step_table(moments))
    assert "100 %" in out.file.getvalue()


def test_a_window_that_is_long_enough_finds_everything_and_one_of_no_rows_nothing():
    assert window_finds(SMALL, 600) == 600
    assert window_finds(SMALL, 0) == 0
