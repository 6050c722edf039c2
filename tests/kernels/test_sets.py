"""Query sets in words mean what the same sets mean as Python integers, beyond 64 bits too."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.sets import count_members, find_patterns, members, query_sets, to_words, words_for

widths = st.sampled_from((1, 63, 64, 65, 128, 130))


def sets(bits, most=8):
    return st.lists(st.integers(0, (1 << bits) - 1), max_size=most)


def to_int(words):
    return sum(int(word) << (64 * place) for place, word in enumerate(words))


@given(st.data(), widths)
def test_words_hold_what_they_were_given(data, bits):
    given_sets = data.draw(sets(bits))
    words = to_words(given_sets, bits)
    assert words.shape == (len(given_sets), words_for(bits))
    assert [to_int(each) for each in words] == given_sets


@given(st.data(), widths, st.sampled_from((1, 3, 64, 65, 130)))
def test_a_query_accepts_a_pattern_that_has_all_its_bits(data, bits, queries):
    patterns = data.draw(sets(bits))
    few = data.draw(st.lists(st.sampled_from([0, 1, 1 << (bits - 1), *patterns]), min_size=1, max_size=5))
    masks = [few[number % len(few)] for number in range(queries)]
    found = [to_int(each) for each in query_sets(to_words(patterns, bits), masks)]
    assert found == [sum(1 << q for q, need in enumerate(masks) if each & need == need) for each in patterns]


@given(st.data(), widths)
def test_each_row_finds_its_bits_in_the_table_of_patterns_and_no_pattern_is_there_twice(data, bits):
    rows = data.draw(sets(bits, 12).filter(len))
    table, place = find_patterns(to_words(rows, bits))
    listed = [to_int(each) for each in table]
    assert [listed[each] for each in place] == rows
    assert sorted(listed) == sorted(set(rows))


@given(st.data(), widths)
def test_members_are_counted_as_they_are_found(data, queries):
    given_sets = data.draw(sets(queries))
    words = to_words(given_sets, queries)
    counts = count_members(words, queries)
    assert counts.tolist() == [sum(each >> q & 1 for each in given_sets) for q in range(queries)]
    assert counts.tolist() == [int(members(words, q).sum()) for q in range(queries)]


def test_the_last_bit_of_a_word_is_not_a_sign():
    words = to_words([1 << 63, (1 << 64) - 1], 64)
    assert words.dtype == np.uint64
    assert members(words, 63).tolist() == [True, True]
    assert count_members(words, 64)[62:].tolist() == [1, 2]
