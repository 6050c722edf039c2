"""The equations of paper 4, derived again: what a row's response time is when streams arrive out of step.

Two streams with λ1 < λ2 rows a second, each evenly spaced, and n = λ2 / λ1 rows of the fast one for each of the slow
one.  The first of them comes right behind a slow row and waits the whole 1 / λ1 for the next, the last n - 1 gaps of
the fast stream less::

    slow   |                                         |        1 / λ1 apart
    fast    1   2   3   ...                      n            1 / λ2 apart
            waits ------------------------------------> 1 / λ1
                waits --------------------------------> 1 / λ1 - 1 / λ2
                                                 waits > 1 / λ1 - (n - 1) / λ2

On average they wait 1 / λ1 - (n - 1) / 2 λ2, which is (n + 1) / 2 λ2: Eq. 5, all there is under filter-order, for the
joining is done meanwhile.  Under sync-filter it begins only then: each fast row takes c·w·λ1, and the k-th is joined
after k of these, on average (n + 1) / 2: Eq. 3.  The waits are a share of 1 and the joining one of c·w·λ1·λ2 in the
same unit, (n + 1) / 2 λ2; hence Eq. 7, which is `penstock.plan.order.gain`.  Of the slow stream's rows, and of what
joining them takes, the analysis says nothing but that it must be less than 1 / λ1 each.

In:  the seconds of a join step (c), the window in seconds (w), and rows a second.  Out: seconds, or a share.
"""

from __future__ import annotations

from penstock.plan.order import Load, gain


def share(step: float, window: float, slow: float, fast: float) -> float:
    """Give c·w·λ1·λ2; by Eq. 1 the join keeps up while it is less than 1.

    >>> round(share(0.0005, 60, 1, 10), 3)
    0.3
    """
    return Load(step, window, (slow, fast)).share


def equation_3(step: float, window: float, slow: float, fast: float) -> float:
    """Give the average response time of the fast stream's rows under sync-filter.

    >>> round(equation_3(0.0005, 60, 1, 10), 3), round(equation_3(0.0001, 86_400, 0.1, 1), 2)
    (0.715, 10.25)
    """
    return equation_5(slow, fast) + (fast / slow + 1) / 2 * step * window * slow


def equation_5(slow: float, fast: float) -> float:
    """Give the same under filter-order: what a row takes to be joined is no part of it.

    >>> equation_5(1, 10), round(equation_5(0.1, 1), 2)
    (0.55, 5.5)
    """
    return 1 / slow - (fast / slow - 1) / (2 * fast)


def equation_7(step: float, window: float, slow: float, fast: float) -> float:
    """Give the part by which Eq. 5 is below Eq. 3: by the engine's own `gain`, which needs to know the share only.

    >>> said = 1 - equation_5(1, 10) / equation_3(0.0005, 60, 1, 10)
    >>> round(said, 6) == round(equation_7(0.0005, 60, 1, 10), 6)
    True
    """
    return gain(share(step, window, slow, fast))


def equation_8(processors: int = 2) -> float:
    """Give the most that can be gained while the join keeps up: as c·w·λ1·λ2 tends to its largest.

    The two streams take the same time, c·w·λ1·λ2 of it each.  With a processor for each, as Eq. 1 reckons, it tends to
    1; one processor for both keeps up until 1/2.

    >>> equation_8(), round(equation_8(processors=1), 3)
    (0.5, 0.333)
    """
    return gain(processors / 2)
