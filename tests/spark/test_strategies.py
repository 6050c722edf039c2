"""Every strategy on the real engine: exact, changed between two starts without a gap, refused where that would lose."""

from __future__ import annotations

import re

import pytest

from penstock.engine import api, deployment
from penstock.engine.api import Engine
from penstock.engine.report import calibrate
from penstock.engine.spark_backend import SparkBackend
from penstock.engine.store import Store, peek
from penstock.engine.views.estimates import prices_of
from penstock.errors import InputError
from penstock.plan.prices import Prices
from penstock.plan.spark_settings import SparkSettings
from penstock.sql.options import STRATEGIES
from penstock.state.commits import Priced
from tests.oracle import answer, same_bag
from tests.spark.test_online import IDS, Streams, delivered

pytestmark = pytest.mark.spark

COMPUTED = (("a.id + b.id", "both"), ("a.v", "av"))


def workload(streams):
    """Windows of three lengths, conditions on either side, an output that is computed, a condition on both rows."""
    return [
        streams.spec("all", 4),
        streams.spec("some", 12, "a.v > 60"),
        streams.spec("few", 12, "a.v > 60", "b.v < 30", select=COMPUTED),
        streams.spec("pairs", 8, "b.v < 30", "a.v < b.v + 20"),
    ]


def run(spark, folder, streams, specs, strategy, *, accept_loss=False):
    """Handle all input there is under one strategy, in a state that may know another."""
    with Engine(folder / "state", spark, settings={"strategy": strategy}) as engine:
        engine.script(streams.script(*specs))
        engine.start(once=True, accept_loss=accept_loss)
        engine.wait()
        return {spec.name: delivered(engine, spec.name) for spec in specs}, engine.status()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_query_gets_what_duckdb_says(spark, tmp_path, strategy):
    streams = Streams(tmp_path)
    for _ in range(2):
        streams.grow()
    specs = workload(streams)
    got, status = run(spark, tmp_path, streams, specs, strategy)
    for spec in specs:
        same_bag(got[spec.name], answer(spec), f"{spec.name}, {strategy}")
    assert len(status.groups) == {"push-down": 4, "isolated": 4}.get(strategy, 1)


def test_strategies_hand_over_to_each_other(spark, tmp_path):
    """One state, another strategy at every start: pairs of rows that came under different ones are not lost."""
    streams = Streams(tmp_path)
    specs = workload(streams)
    for strategy in ("push-down", "cpu-opt", "pull-up", "mem-opt"):
        streams.grow()
        got, _ = run(spark, tmp_path, streams, specs, strategy)
        for spec in specs:
            same_bag(got[spec.name], answer(spec), f"{spec.name}, {strategy}")


def test_what_would_lose_results_is_refused_unless_accepted(spark, tmp_path):
    streams = Streams(tmp_path)
    streams.grow()
    kept, gone = streams.spec("kept", 4, select=IDS), streams.spec("gone", 8, select=IDS)
    run(spark, tmp_path, streams, [kept, gone], "mem-opt")
    with pytest.raises(InputError, match=r"lose results: query gone .* accept the loss \(--accept-loss"):
        run(spark, tmp_path, streams, [kept], "mem-opt")
    with pytest.raises(InputError, match=r"kept, gone would change state \(isolated\)"):
        run(spark, tmp_path, streams, [kept, gone], "isolated")
    streams.grow()
    got, status = run(spark, tmp_path, streams, [kept], "isolated", accept_loss=True)
    assert got["kept"] <= answer(kept)
    assert status.queries[0].complete_from is not None


def test_a_chain_is_cut_anew_while_it_runs_when_what_was_measured_says_so(spark, tmp_path, monkeypatch):
    """Writing rows again is made dear: the slices that save state by it are merged, and the journal says why."""
    streams = Streams(tmp_path)
    specs = [streams.spec("short", 4), streams.spec("long", 12, "a.v > 80", "b.v > 80")]
    store = Store(str(tmp_path / "state"))
    store.commit(Priced(Prices(rewrite=100.0, unit=0.0, row=0.0)))
    store.close()
    for module in (api, deployment):
        monkeypatch.setattr(module, "settings_of", lambda _: SparkSettings("Etc/UTC"))
    with Engine(tmp_path / "state", spark, settings={"strategy": "cpu-opt"}) as engine:
        engine.script(streams.script(*specs))
        engine.start()
        for _ in range(20):
            streams.grow()
            engine.process_available()
            if len(engine.status().changes) > 1:
                break
        streams.grow()
        engine.process_available()
        status = engine.status()
        assert [len(group.slices) for group in status.groups] == [2]
        assert re.match(
            r"cut a ⋈ b anew, 2 slices in place of 4: \d+% less work expected", status.changes[-1].reason
        )
        assert "-> short (to 4 s), long" in engine.explain()
        assert engine.plan.spark_settings == SparkSettings("Etc/UTC"), "which the state goes on under"
        for spec in specs:
            same_bag(delivered(engine, spec.name), answer(spec), spec.name)


def test_prices_are_measured_by_the_engines_own_jobs_and_kept_with_the_state(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "ROWS", 2_000)
    monkeypatch.setattr(calibrate, "ROUNDS", 2)
    told = []
    state = Store(str(tmp_path / "state"))
    prices = calibrate.Bench(spark, SparkBackend(spark, state.files), state.files, told.append).prices()
    state.commit(Priced(prices))
    assert prices_of(state.ledger) == prices
    state.close()
    assert prices.unit > 0
    assert prices.rewrite > 0
    assert len(told) == 2
    assert prices_of(peek(str(tmp_path / "state"))) == prices, "also after the state is opened again"
    assert not state.files.list("log/calibration")
