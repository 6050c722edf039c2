"""From queries to the plan: what has one signature shares a chain, what has one key shares a log."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.plan.build import Plan, build_plan
from penstock.plan.group import Group
from penstock.plan.stored import KeyPart, LogPlan, log_id
from penstock.sql.query import Key, OutputColumn, Query, Range
from penstock.sql.script import parse_script
from tests.kernels.drawn import examples
from tests.plan.workloads import STREAMS, workloads

PAIR = Query("q", "A", "B", (Key("k", "k"),), Range(0, 10), (OutputColumn("id", "l.id", ("l", "id")),))


def plan_of(*queries):
    return build_plan(STREAMS, queries)


@examples(50)
@given(workloads())
def test_every_query_is_in_the_one_group_of_its_signature(queries):
    plan = plan_of(*queries)
    assert sorted(each.name for each in plan.queries) == sorted(each.name for each in queries)
    signatures = [group.signature for group in plan.groups]
    assert len(set(signatures)) == len(signatures) == len({each.signature for each in queries})
    for query in queries:
        group, number, member = plan.find(query.name.upper())
        assert (group.signature, group.members[number], member.query) == (query.signature, member, query)


@examples(50)
@given(workloads())
def test_names_of_groups_and_logs_tell_them_apart(queries):
    plan = plan_of(*queries)
    assert len({group.id for group in plan.groups}) == len(plan.groups)
    assert len({log.id for log in plan.logs}) == len(plan.logs)
    assert len({(log.stream, log.key) for log in plan.logs}) == len(plan.logs), (
        "no stream is stored twice by a key"
    )


@examples(50)
@given(workloads())
def test_a_log_stores_what_its_readers_need_and_nothing_else(queries):
    plan = plan_of(*queries)
    for log in plan.logs:
        readers = [(member.query, side) for group, side in plan.uses(log.id) for member in group.members]
        assert set(log.columns) == {
            name
            for query, side in readers
            for name in (query.left_columns if side == "l" else query.right_columns)
        }
        assert set(log.predicates) == {
            each
            for query, side in readers
            for each in (query.left_predicates if side == "l" else query.right_predicates)
        }


@examples(50)
@given(workloads())
def test_a_querys_mask_has_the_bits_of_its_own_predicates(queries):
    for group in plan_of(*queries).groups:
        for member in group.members:
            for side, own in (("l", member.query.left_predicates), ("r", member.query.right_predicates)):
                listed, mask = group.log(side).predicates, member.masks[group.index(side)]
                assert {listed[bit] for bit in range(len(listed)) if mask >> bit & 1} == set(own)
                assert mask < 1 << len(listed)


@examples(50)
@given(workloads(), st.integers(-32, 32))
def test_the_set_of_a_slice_has_the_queries_whose_window_a_pair_in_it_is_in(queries, difference):
    for group in plan_of(*queries).groups:
        sets = group.level_sets()
        for level, piece in enumerate(group.chain.slices):
            if difference in piece.range:
                assert sets[level] == sum(
                    1 << number
                    for number, member in enumerate(group.members)
                    if difference in member.query.window
                )


@examples(50)
@given(workloads(), st.integers(-32, 32))
def test_a_row_is_kept_just_as_long_as_a_partner_can_be_in_the_window(queries, difference):
    """A left row at 0 has its last partner at hi - 1; a right row at 0 has its last partner at -lo."""
    for group in plan_of(*queries).groups:
        for member in group.members:
            if difference in member.query.window:
                assert difference < member.reach("l")
                assert -difference < member.reach("r")
            assert member.reach("l") - 1 in member.query.window
            assert 1 - member.reach("r") in member.query.window


def test_a_pair_in_a_gap_between_windows_is_no_result_so_pairs_carry_their_queries():
    """::

    d      0         5             9        12
           |= soon ==|             |= later =|
                      gap: nobody's
    """
    soon, later = (
        replace(PAIR, name="soon", window=Range(0, 5)),
        replace(PAIR, name="later", window=Range(9, 12)),
    )
    gap, together = plan_of(soon, later).groups[0], plan_of(soon, PAIR).groups[0]
    assert gap.level_sets() == [1, 0, 2]
    assert gap.selective
    assert not together.selective


def test_a_self_join_reads_one_log_as_both_sides():
    plan = plan_of(replace(PAIR, right="A"))
    (log,) = plan.logs
    assert [side for _, side in plan.uses(log.id)] == ["l", "r"]


def test_groups_that_join_a_stream_on_one_key_share_its_log():
    plan = plan_of(
        PAIR, replace(PAIR, name="p", right="C"), replace(PAIR, name="r", keys=(Key("name", "name"),))
    )
    assert [(log.stream, log.key[0].expression) for log in plan.logs] == [
        ("A", "k"), ("B", "k"), ("C", "k"), ("A", "name"), ("B", "name"),
    ]  # fmt: skip
    assert [log.key[0].expression for log in plan.logs_of("A")] == ["k", "name"]


def test_joins_without_an_equality_share_one_log_per_stream_whatever_their_conditions():
    """Also with another partner; and the log has no key to look up, so it is none of those sorted by one."""
    plan = plan_of(
        replace(PAIR, keys=(), residual=("l.n < r.n",)),
        replace(PAIR, name="band", keys=(), residual=("ABS(l.n - r.n) < 5",)),
        replace(PAIR, name="cross", keys=(), right="C"),
        replace(PAIR, name="keyed"),
    )
    assert [[each.query.name for each in group.members] for group in plan.groups] == [
        ["q", "band"], ["cross"], ["keyed"],
    ]  # fmt: skip
    assert [(log.stream, log.order) for log in plan.logs] == [
        ("A", "time alone"), ("B", "time alone"), ("C", "time alone"), ("A", "k"), ("B", "k"),
    ]  # fmt: skip
    assert all(log.whole_key and not log.plain_key for log in plan.logs if not log.key)


def test_only_streams_that_somebody_reads_are_in_the_plan():
    assert [each.name for each in plan_of(PAIR).streams] == ["A", "B"]


def test_keys_that_differ_only_in_a_literals_case_are_different_logs():
    """Lower case made one directory of two logs, each with the other's rows."""
    ids = {log_id("A", (KeyPart(f"replace(name, '{letter}', '')", "string"),)) for letter in "xX"}
    assert len(ids) == 2
    one, other = (
        replace(PAIR, name=letter, keys=(Key(f"replace(name, '{letter}', '')", "name"),)) for letter in "xX"
    )
    plan = plan_of(one, other)
    assert len({group.id for group in plan.groups}) == len({log.id for log in plan.logs_of("A")}) == 2


DECLARE = """
CREATE STREAM A (k BIGINT, n INT, v DOUBLE, name STRING, day DATE, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
CREATE STREAM B (k BIGINT, n INT, v DOUBLE, name STRING, day DATE, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
"""


@pytest.mark.parametrize(
    "condition",
    [
        "A.k = B.k", "A.n = B.k", "A.n + 1 = B.k", "A.v = B.k", "CAST(A.n AS BIGINT) = B.k",
        "A.k = CAST(B.v AS BIGINT)",
        "to_date(A.ts) = B.day", "A.day = to_date(B.ts)", "lower(A.name) = B.name", "A.name = B.name",
        "CAST(A.n AS BIGINT) = CAST(B.n AS BIGINT)", "A.k = B.k AND CAST(A.name AS DATE) = B.day",
    ],
)  # fmt: skip
def test_both_sides_of_a_key_are_stored_in_one_form(condition):
    """A 64-bit key on one side and a digest on the other would never be equal: a join without results."""
    script = parse_script(DECLARE + f"CREATE QUERY q AS SELECT A.k FROM A, B WHERE {condition} WINDOW 1 s")
    (group,) = build_plan(script.streams, script.queries).groups
    left, right = group.logs
    assert left.whole_key == right.whole_key
    assert [part.type for part in left.key] == [part.type for part in right.key]


@examples(50)
@given(workloads(most=2))
def test_a_group_whose_query_reads_other_slices_than_its_window_is_refused(queries):
    group = plan_of(*queries).groups[0]
    member = group.members[0]
    first, last = member.levels
    with pytest.raises(InputError, match="not its window"):
        replace(group, members=(replace(member, levels=(first, last + 1)),))


def test_a_query_of_another_signature_is_refused():
    group = plan_of(PAIR).groups[0]
    stranger = replace(group.members[0], query=replace(PAIR, right="C"))
    with pytest.raises(InputError, match="does not belong"):
        Group(group.id, group.signature, group.inputs, group.chain, (stranger,))


def test_a_plan_without_a_log_that_a_group_reads_is_refused():
    plan = plan_of(PAIR)
    with pytest.raises(InputError, match="does not keep"):
        Plan(plan.streams, plan.logs[:1], plan.groups, plan.queries)


def test_a_log_with_a_predicate_twice_is_refused():
    with pytest.raises(InputError, match="predicate twice"):
        LogPlan("a", "A", (KeyPart("k", "bigint"),), ("id > 0", "id > 0"), ())


def test_an_unknown_query_is_answered_with_the_nearest_name():
    with pytest.raises(InputError, match="did you mean alarm"):
        plan_of(replace(PAIR, name="alarm")).find("alram")
