"""Which aggregate queries read the same panes: as they come, stay and go, none is ever taken for another."""

from __future__ import annotations

from math import gcd
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.panes import MOST_READERS, alike, finest, set_of, share_panes, sharing_key
from penstock.sql.bind.binder import bind_query
from tests.kernels.drawn import examples
from tests.sql.streams import STREAMS

S = 1_000_000
KINDS = {
    "count": ("A.k, COUNT(*) AS n", "GROUP BY A.k"),
    "max": ("A.k, MAX(B.w) AS m", "GROUP BY A.k"),
    "all": ("COUNT(*) AS n", ""),
}


def asked(name, window=60, every=10, *, kind="count", where="", other=None, **options):
    """Bind an aggregate query; windows and steps in seconds, another window for B if given."""
    select, rest = KINDS[kind]
    brackets = ("", "") if other is None else (f" [RANGE {window} seconds]", f" [RANGE {other} seconds]")
    length = f"WINDOW {window} seconds" if other is None else ""
    step = f"EVERY {every} seconds" if options.get("emit", "sliding") == "sliding" else ""
    text = (
        f"SELECT {select} FROM A{brackets[0]}, B{brackets[1]} WHERE A.k = B.k {where} {rest} {length} {step}"
    )
    return bind_query(name, text, STREAMS, options=options)


def names_by_set(sets):
    return sorted(sorted(each.readers) for each in sets.values())


def test_queries_with_the_same_expressions_share_whatever_their_windows_and_conditions():
    sets = share_panes(
        [
            asked("a", 60, 10),
            asked("b", 30, 5),
            asked("c", 60, 20, where="AND B.w > 3"),
            asked("d", kind="max"),
            asked("e", emit="changes"),
            asked("f", 60, 10, other=30),
            asked("g", 90, 10, other=60),
        ]
    )
    assert names_by_set(sets) == [["a", "b", "c"], ["d"], ["e"], ["f", "g"]]
    (shared,) = (each for each in sets.values() if "a" in each.readers)
    assert (shared.pane, shared.step, shared.width, shared.skew) == (5 * S, 5 * S, 60 * S, 0)
    (skewed,) = (each for each in sets.values() if "f" in each.readers)
    assert (skewed.pane, skewed.width, skewed.skew) == (10 * S, 60 * S, 30 * S)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"kind": "count"}, {"kind": "all"}),
        ({"window": 60, "other": 30}, {"window": 60}),
        ({"emit": "final", "window": 60}, {"emit": "final", "window": 30}),
        ({"emit": "changes"}, {"emit": "final"}),
        ({"where": "AND A.v < B.w"}, {}),
    ],
)
def test_what_is_folded_otherwise_is_not_shared(one, other):
    assert sharing_key(asked("a", **one)) != sharing_key(asked("b", **other))


def test_queries_whose_steps_hardly_agree_do_not_cut_panes_to_pieces_for_each_other():
    assert names_by_set(share_panes([asked("a", 35, 7), asked("b", 25, 5)])) == [["a"], ["b"]]
    assert names_by_set(share_panes([asked("a", 60, 10), asked("b", 60, 1)])) == [["a", "b"]]


def test_a_query_that_comes_later_joins_only_panes_that_are_fine_enough():
    first = share_panes([asked("a", 60, 10)])
    later = share_panes([asked("a", 60, 10), asked("b", 60, 5)], first, ["b"], version=2)
    assert names_by_set(later) == [["a"], ["b"]]
    later = share_panes([asked("a", 60, 10), asked("b", 300, 20)], first, ["b"], version=2)
    assert names_by_set(later) == [["a", "b"]]
    (both,) = later.values()
    assert (both.pane, both.step, both.width) == (10 * S, 10 * S, 300 * S)


def test_a_bit_is_never_given_twice():
    sets = share_panes([asked("a"), asked("b")])
    (first,) = sets.values()
    assert first.readers == {"a": 0, "b": 1}
    (second,) = share_panes([asked("b"), asked("c")], sets, ["c"], version=2).values()
    assert second.readers == {"b": 1, "c": 2}
    (third,) = share_panes(
        [asked("b"), asked("c"), asked("a")], {second.id: second}, ["a"], version=3
    ).values()
    assert third.readers == {"b": 1, "c": 2, "a": 3}, "who comes again is a new reader"


def test_a_set_that_has_used_up_its_bits_takes_nobody_more():
    sets = share_panes([asked("a")])
    for number in range(1, MOST_READERS + 5):
        queries = [asked("a"), asked(f"q{number}")]
        sets = share_panes(queries, sets, [f"q{number}"], version=number + 1)
    assert all(each.used <= MOST_READERS for each in sets.values())
    assert len(sets) == 2
    assert set_of("a", sets) is not set_of(f"q{MOST_READERS + 4}", sets)


def test_a_set_that_nobody_reads_is_gone_and_its_name_is_not_given_again():
    first = share_panes([asked("a")])
    assert share_panes([], first, version=2) == {}
    assert not set(first) & set(share_panes([asked("a")], first, ["a"], version=2))


@examples(30)
@given(st.integers(0, 2**31))
def test_queries_that_come_stay_and_go_always_have_one_set_that_fits_them(seed):
    random, sets, running = Random(seed), {}, {}
    taken = {}
    for version in range(1, 7):
        for name in random.sample(sorted(running), random.randint(0, len(running))):
            del running[name]
        anew = []
        for name in random.sample("abcdef", random.randint(1, 3)):
            window, every = random.choice([2, 4, 6, 8, 12, 60]), random.choice([1, 2])
            where = random.choice(["", "AND B.w > 3"])
            other = random.choice([None, None, window // 2])
            kind = random.choice(["count", "all"])
            running[name] = asked(name, window, every, kind=kind, where=where, other=other)
            anew.append(name)
        before = sets
        sets = share_panes(running.values(), before, anew, version=version)
        for name, query in running.items():
            (mine,) = (each for each in sets.values() if name in each.readers)
            aggregation = query.aggregation
            assert finest(aggregation) % mine.pane == 0
            assert aggregation.every % mine.step == 0
            assert mine.width >= aggregation.reach[1]
            assert mine.skew == aggregation.reach[0] - aggregation.reach[1]
            assert mine.readers[name] < mine.used
            owner = taken.setdefault((mine.id, mine.readers[name]), (name, version))
            assert owner[0] == name, "nobody else has ever had this bit"
            if name not in anew:
                assert name in before[mine.id].readers, "who stays, stays where it is"
        for name, each in sets.items():
            if name in before and each.readers:
                assert (each.pane, each.step) == (before[name].pane, before[name].step), (
                    "what is folded stays"
                )
            assert len(set(each.readers.values())) == len(each.readers)
            keys = {sharing_key(running[reader]) for reader in each.readers}
            assert len(keys) == 1


def test_panes_are_no_finer_than_all_their_readers_need():
    queries = [asked("a", 12, 6), asked("b", 30, 10), asked("c", 20, 4)]
    for each in share_panes(queries).values():
        needs = [finest(query.aggregation) for query in queries if query.name in each.readers]
        assert each.pane == gcd(*needs)


def test_readers_with_the_same_conditions_have_a_pair_together():
    queries = [
        asked("a", 60),
        asked("b", 30),
        asked("c", 30, where="AND B.w > 3"),
        asked("d", 50, where="AND B.w > 3"),
    ]
    (panes,) = share_panes(queries).values()
    bits = {name: 1 << bit for name, bit in panes.readers.items()}
    assert alike(queries[0], queries, panes) == bits["a"] | bits["b"]
    assert alike(queries[3], queries, panes) == bits["c"] | bits["d"]
    bounded = asked("e", 30, where="AND B.ts > A.ts - INTERVAL 5 SECONDS")
    (panes,) = share_panes([*queries, bounded]).values()
    assert alike(bounded, [*queries, bounded], panes) == 1 << panes.readers["e"]
