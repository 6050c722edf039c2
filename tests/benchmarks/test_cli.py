"""The command of the benchmarks."""

from __future__ import annotations

from benchmarks.cli import BENCHMARKS
from penstock.cli.main import main


def test_bench_lists_every_benchmark(capsys):
    main(["bench"])
    shown = capsys.readouterr()
    assert {"peers", "latency", "aggregates", "overload"} <= set(BENCHMARKS)
    assert all(name in shown.out + shown.err for name in BENCHMARKS)
