"""Recursion as deep as the text: brackets in brackets must not exhaust Python's stack.

A function that would call itself is written as a generator that yields each such call and gets its result back::

    def size(tree):
        return 1 + sum([(yield size(child)) for child in tree])

`run` keeps the calls on a list of its own, so that only memory bounds their depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

Result = TypeVar("Result")
Deep = "Generator[Generator[Any, Any, Any], Any, Result]"
"""What a function that recurses like this gives; called with `run`, it gives its result."""


def run(call: Generator[Generator[Any, Any, Any], Any, Result]) -> Result:
    """Give the result of a deep function.

    >>> def size(tree):
    ...     sizes = []
    ...     for child in tree:
    ...         sizes.append((yield size(child)))
    ...     return 1 + sum(sizes)
    >>> run(size([[], [[]]]))
    4
    """
    calls: list[Generator[Any, Any, Any]] = [call]
    result: Any = None
    while calls:
        try:
            inner = calls[-1].send(result)
        except StopIteration as done:
            calls.pop()
            result = done.value
        else:
            calls.append(inner)
            result = None
    final: Result = result
    return final
