"""Numbers as the lab prints them."""

from __future__ import annotations

from benchmarks.printing import ms, percent, percents, seconds, span


def test_shares_are_printed_in_percent_without_a_negative_zero():
    assert (percent(0.256), percent(-0.0001), percent(-0.1)) == ("26 %", "0 %", "-10 %")
    assert (percents([0.01, 0.5]), percents([0.012], 1)) == ("1, 50 %", "1.2 %")
    assert (span([0.3, 0.1, 0.2]), span([0.2])) == ("10 to 30 %", "20 to 20 %")


def test_times_have_the_digits_that_tell_something():
    assert [ms(each) for each in (1.47, 0.0224, 0.00252, 0.0)] == ["1,470", "22.4", "2.52", "0.00"]
    assert [seconds(each) for each in (5004.8, 79.413, 0.5499)] == ["5,005", "79.4", "0.550"]
