"""The lab's commands, and the claims that must keep holding."""

from __future__ import annotations

import pytest

from penstock.app.cli import main
from penstock.lab.figures import FIGURES, Claim, Figure, Outcome, fig17, fig18, fig19, table2
from penstock.lab.paper1_settings import SETTINGS, table_4


def test_state_slice_holds_the_least_state_in_every_setting():
    for setting in SETTINGS:
        held = fig17.rows_held(setting, 40, seed=5)
        assert min(held, key=held.get) == "State-Slice-Chain", setting


def test_state_slice_has_the_highest_service_rate_in_every_setting():
    for setting in SETTINGS:
        assert fig18.gain(setting, 40, seed=5) > 0, setting
        assert fig18.model_gain(setting, 80) > fig18.model_gain(setting, 20) > 0, setting


def test_cpu_opt_gains_with_the_number_of_queries():
    gains = [fig19.gain("Small-Large", queries, 40, seed=5) for queries in (12, 24)]
    assert 0 < gains[0] < gains[1]


def test_no_overhead_gives_both_chains_of_figure_19():
    """Where Small-Large is worth two slices, Uniform is not worth twelve: the paper's two claims exclude each other."""
    _, uniform_until = fig19.overhead_range("Uniform", 12, 20)
    two_from, _ = fig19.overhead_range("Small-Large", 2, 20)
    # Merging [0, 2.5) and [2.5, 5): 20·5·0.025 = 2.5 < 2 + C_sys.  Merging [6, 25) and [25, 30): 25·2 = 50 < 1 + C_sys.
    assert uniform_until == pytest.approx(0.5, abs=0.1)
    assert two_from == pytest.approx(49, abs=0.1)


def test_table_4_for_more_queries_keeps_its_ends():
    for name in ("Uniform", "Mostly-Small", "Small-Large"):
        for queries in (12, 24, 36):
            windows = table_4(name, queries)
            assert len(windows) == len(set(windows)) == queries
            assert windows == sorted(windows)
            assert windows[-1] == 30


def test_table_2_agrees_with_the_paper_until_its_slip():
    rows = list(table2.trace())
    assert rows[:8] == list(table2.PRINTED[:8])
    assert rows[8:] == ["a4 a3|b2|a2 a1|", "a4 a3||a2 a1|a1b2 a2b2"]


def test_lab_list_names_every_figure(capsys):
    assert main(["lab", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(each.name in printed for each in FIGURES)


def test_lab_prints_a_table_and_the_claims(capsys, tmp_path):
    assert main(["lab", "table2", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "b2 a2 b1 a1" in printed
    assert "not held (8 of 10)" in printed


def test_lab_draws_a_picture(capsys, tmp_path):
    assert main(["lab", "fig11", "--out", str(tmp_path / "new"), "--seed", "3"]) == 0
    assert (tmp_path / "new" / "fig11.png").read_bytes().startswith(b"\x89PNG")
    assert "fig11.png" in capsys.readouterr().out


def test_strict_fails_when_a_claim_does_not_hold(capsys, monkeypatch):
    def figure(*, held):
        return Figure("one", 1, "a claim", lambda _seed: Outcome((), (Claim("it is so", held, "1"),)))

    monkeypatch.setattr("penstock.lab.cli.FIGURES", (figure(held=True),))
    assert main(["lab", "one", "--strict"]) == 0
    monkeypatch.setattr("penstock.lab.cli.FIGURES", (figure(held=False),))
    assert main(["lab", "one"]) == 0
    assert main(["lab", "one", "--strict"]) == 1
    assert "it is so: not held (1)" in capsys.readouterr().out


def test_a_figure_that_is_not_there_is_refused_with_the_nearest_one(capsys):
    assert main(["lab", "fg17"]) == 2
    assert "did you mean fig17" in capsys.readouterr().err


def test_lab_alone_prints_its_help(capsys):
    main(["lab"])
    shown = capsys.readouterr()
    assert "NAME" in shown.out + shown.err
