"""The lab's commands, and what a figure of a paper is made of."""

from __future__ import annotations

import pytest

from papers.cli import PAPERS
from papers.figure import CALIBRATED, CHECK, Claim, Outcome, Paper
from papers.paper3_sweep import Sweep
from penstock.cli.main import main

FIGURES = [each for paper in PAPERS for each in paper.figures]


def test_lab_list_names_every_figure_and_how_long_it_takes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["lab", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{each.seconds} s" in printed and each.name in printed for each in FIGURES)


def test_no_two_figures_have_one_name():
    assert len({each.name for each in FIGURES}) == len(FIGURES) == 31


def test_every_figure_of_the_papers_that_was_there_still_is():
    first = ["table2", "fig11", "fig17", "fig18", "fig19"]
    second = [f"p2-{each}" for each in ("fig2", "fig3", "fig5", "fig6", "fig7", "fig8", "fig9", "memory")]
    third = [f"p3-fig{number}" for number in range(8, 13)]
    fourth = [f"p4-fig{number}" for number in range(5, 11)]
    fifth = [f"p5-fig{number}" for number in range(5, 12)]
    assert [each.name for each in FIGURES] == first + second + third + fourth + fifth
    assert [each.name for each in FIGURES if each.on_spark] == [
        "fig17",
        "p2-fig6",
        "p3-fig8",
        "p3-fig9",
        "p5-fig9",
    ]


def test_lab_prints_a_table_and_the_claims(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["lab", "table2", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "b2 a2 b1 a1" in printed
    assert "did not hold (8 of 10; with self-purge 9, all but step 8)" in printed


def test_lab_draws_a_picture(capsys, tmp_path):
    assert main(["lab", "fig11", "--out", str(tmp_path / "new"), "--seed", "3"]) == 0
    assert (tmp_path / "new" / "fig11.png").read_bytes().startswith(b"\x89PNG")
    assert "fig11.png" in capsys.readouterr().out


def pretended(monkeypatch, *, held, kind=""):
    def one(seed):
        """Claim something."""
        out = Outcome()
        out.claim("it is so", held, str(seed), kind)
        return out

    paper = Paper(9, lambda seed: seed, "", {one: 1})
    monkeypatch.setattr("papers.cli.PAPERS", (paper,))


def test_a_figure_gets_the_sweep_of_its_paper_by_the_seed(capsys, monkeypatch):
    pretended(monkeypatch, held=True)
    assert main(["lab", "one", "--seed", "42"]) == 0
    assert "✓ it is so: held (42)" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["", CALIBRATED, CHECK])
def test_strict_fails_when_a_claim_does_not_hold(capsys, monkeypatch, kind):
    pretended(monkeypatch, held=True, kind=kind)
    assert main(["lab", "one", "--strict"]) == 0
    pretended(monkeypatch, held=False, kind=kind)
    assert main(["lab", "one"]) == 0
    assert main(["lab", "one", "--strict"]) == 1
    said = {"": "did not hold", CALIBRATED: "did not hold, calibrated", CHECK: "self-check failed"}[kind]
    assert f"✗ it is so: {said} (1)" in capsys.readouterr().out


def test_a_figure_that_cannot_run_on_spark_says_which_can(capsys):
    assert main(["lab", "fig18", "--on", "spark"]) == 2
    assert "these can: fig17, p2-fig6, p3-fig8, p3-fig9, p5-fig9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fig17", "--streams", "punct-asc-30-40,uniform-9"], "not for fig17"),
        (["p3-fig8", "--streams", "punct-asc-30-40,uniform-9", "--on", "spark"], "in virtual time"),
        (["p3-fig8", "--streams", "punct-asc-30-40"], "must be two streams"),
        (["p3-fig8", "--streams", "uniform-9,uniform-9"], "one of them with punctuations"),
        (["p3-fig8", "--streams", "punct-up-30-40,uniform-9"], "asc, desc or random"),
        (["p3-fig12", "--streams", "punct-asc-30-40,uniform-9"], "has no punctuations"),
    ],
)
def test_streams_that_a_figure_cannot_join_are_refused(capsys, arguments, said):
    assert main(["lab", *arguments]) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_streams_can_be_chosen_for_paper_3(capsys, monkeypatch):
    def streams(sweep):
        """Say which streams are joined."""
        out = Outcome()
        out.note(" and ".join(map(str, sweep.pair("punct-asc-100-40", "uniform-7"))))
        return out

    paper = Paper(3, Sweep, "", {streams: 1})
    monkeypatch.setattr("papers.cli.PAPERS", (paper,))
    monkeypatch.setattr("papers.paper3.PAPER", paper)
    assert main(["lab", "streams"]) == 0
    assert main(["lab", "streams", "--streams", "cluster-random-30,punctuation-desc-5-20"]) == 0
    said = capsys.readouterr().out
    assert "punct-asc-100-40 and uniform-7" in said
    assert "cluster-random-30 and punct-desc-5-20" in said


def test_a_figure_that_is_not_there_is_refused_with_the_nearest_one(capsys):
    assert main(["lab", "fg17"]) == 2
    assert "did you mean fig17" in capsys.readouterr().err


def test_lab_alone_prints_its_help(capsys):
    main(["lab"])
    shown = capsys.readouterr()
    assert "NAME" in shown.out + shown.err


def test_pictures_begin_at_zero_unless_they_are_logarithmic():
    out = Outcome()
    out.draw({"one": {"LWO": [1, 2], "LWO, simulated": [1, 2]}}, [1, 10], "x", "y")
    out.draw({"one": {"LWO": [1, 2]}}, ["a", "b"], "x", "y", log="y")
    plain, log = (picture.axes[0] for picture in out.pictures)
    assert plain.get_ylim()[0] == 0
    assert log.get_yscale() == "log"
    assert [each.get_text() for each in log.get_xticklabels()] == ["a", "b"]


def test_a_claim_says_whether_it_held_and_by_which_number():
    assert str(Claim("it is so", False, "3 of 4")) == "it is so: did not hold (3 of 4)"
    assert str(Claim("it is so", True, "4 of 4", CALIBRATED)) == "it is so: held, calibrated (4 of 4)"
    assert str(Claim("it must be so", True, "1 = 1", CHECK)) == "it must be so: self-check (1 = 1)"
    (out := Outcome()).every("all are", [True, False], "; the last is not")
    assert str(out.claims[0]) == "all are: did not hold (1 of 2; the last is not)"
