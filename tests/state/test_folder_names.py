"""Any name that SQL can quote becomes a directory's name, and no two become the same."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.plan.group import group_id
from penstock.plan.stored import KeyPart, log_id
from penstock.sql.query import Signature
from penstock.state.files import safe_name

odd = st.text(max_size=400) | st.sampled_from(
    ["a/b", "..", ".", "CON", "é", "É", "A" * 300, "x-1", "", "a b", "a\0b"]
)


@given(odd, odd)
@example("a/b", "a_b-0debd2558bca8fa0")
@example("a b", "a/b")
@example("x" * 300, "x" * 301)
def test_two_names_have_one_directory_only_if_they_differ_in_case_alone(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one.lower() == other.lower())


@given(odd)
def test_a_directory_s_name_is_one_component_that_every_filesystem_takes(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]*(-[0-9a-f]{16})?", safe_name(name))
    assert 1 <= len(safe_name(name)) <= 255


@given(st.from_regex(r"[A-Za-z0-9_]{1,200}", fullmatch=True))
def test_plain_names_stay_as_they_are_so_that_old_states_do(name: str) -> None:
    assert safe_name(name) == name.lower()


@given(odd)
def test_logs_and_groups_of_any_stream_have_names_that_fit(name: str) -> None:
    ids = [
        log_id(name, (KeyPart(f"lower({name})", "string"),)),
        group_id(Signature(name, name, ())),
    ]
    assert all(re.fullmatch(r"[a-z0-9_-]{1,255}", each) for each in ids)
