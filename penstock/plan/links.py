"""The links of a join of many streams: the equalities between inputs, and the keys by which their streams are logged.

Equalities that follow from each other are one link: of ``A.k = B.k AND B.k = C.k`` any two inputs can be joined
directly.  Two equalities between the same inputs are one link with a key of two parts::

    A.k = B.k AND B.k = C.k                    one link   k: A B C
    A.k = B.k AND A.m = B.m                    one link   (k, m): A B
    O.id = P.order_id AND P.id = S.payment_id  two links  id: O P        payment: P S

A stream is logged once for each of its links, sorted by that key, so that its rows can be found from either side.
Each of these logs also stores the hashes of the other keys (`link_columns`), so that the next input can be probed from
any of them.  Inputs that no equality connects are joined by time alone: one input of each connected part of the graph
is in a link with an empty key.

In:  the edges of a signature, and the declared streams.  Out: `Link`s.
True: every input is in a link, and from any input every other can be reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.plan.stored import KeyPart, is_whole, key_part, key_text
from penstock.sql.query import RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sql.query import Edge, Signature, Stream

    Term = tuple[int, KeyPart]
    """An input, by its number, and the compared expression of its rows."""

LINK = f"{RESERVED}x"
"""The prefix of the columns that hold a row's other keys."""

POSITION = f"{RESERVED}position"
"""The column that holds a row's position in the order of arrival, beside its event time."""


@dataclass(frozen=True, slots=True)
class Link:
    """A key that is equal in some inputs: the parts of that key in each, by its number."""

    keys: tuple[tuple[int, tuple[KeyPart, ...]], ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """List the connected inputs."""
        return tuple(number for number, _ in self.keys)

    def key(self, number: int) -> tuple[KeyPart, ...]:
        """Return the key of one input."""
        return dict(self.keys)[number]

    def __str__(self) -> str:
        """Write the key by the first input's expressions."""
        return ", ".join(part.expression for part in self.keys[0][1]) or "time alone"


def links_of(signature: Signature, streams: Mapping[str, Stream]) -> tuple[Link, ...]:
    """Find the links of a join of many streams; the keys of `streams` are names in lower case."""
    declared = [streams[name.lower()] for name in signature.streams]
    classes = _classes(declared, signature.edges)
    together: dict[tuple[int, ...], list[list[Term]]] = {}
    for terms in classes:
        together.setdefault(tuple(number for number, _ in terms), []).append(terms)
    links = [_link(inputs, alike) for inputs, alike in together.items()]
    entries = _entries(len(declared), links)
    if len(entries) > 1:
        links.append(Link(tuple((number, ()) for number in entries)))
    return tuple(sorted(links, key=lambda link: (link.inputs, str(link))))


def _classes(streams: Sequence[Stream], edges: Iterable[Edge]) -> list[list[Term]]:
    """Group terms whose equality follows from the edges, with one term of each input in a group.

    A term is an expression and the type it is compared as: values that are equal as text may differ as numbers.
    """
    classes: list[set[Term]] = []
    for edge in edges:
        left = key_part(streams[edge.first], edge.key.left, edge.key.type)
        right = key_part(streams[edge.second], edge.key.right, edge.key.type)
        left, right = (
            replace(left, type=left.type or right.type),
            replace(right, type=right.type or left.type),
        )
        terms = {(edge.first, left), (edge.second, right)}
        meeting = [known for known in classes if known & terms]
        classes = [known for known in classes if not known & terms] + [terms.union(*meeting)]
    return [terms for known in classes for terms in _one_term_each(sorted(known))]


def _one_term_each(terms: list[Term]) -> list[list[Term]]:
    """Divide a class in which an input has several terms: it is compared with the others by each of them.

    Of ``A.k = B.k AND A.m = B.k`` both k and m of A equal B.k: two keys, each with the same term of B.  More terms of
    an input are compared with the first terms of the others, from which the other equalities follow.
    """
    of_input: dict[int, list[KeyPart]] = {}
    for number, part in terms:
        of_input.setdefault(number, []).append(part)
    firsts = {number: parts[0] for number, parts in of_input.items()}
    further = ({**firsts, number: part} for number, parts in of_input.items() for part in parts[1:])
    return [list(parts.items()) for parts in (firsts, *further)]


def _link(inputs: tuple[int, ...], classes: list[list[Term]]) -> Link:
    ordered = sorted(classes)
    return Link(
        tuple((number, tuple(terms[place][1] for terms in ordered)) for place, number in enumerate(inputs))
    )


def _entries(count: int, links: Iterable[Link]) -> list[int]:
    """List the first input of each connected part of the graph."""
    first = list(range(count))
    for link in links:
        least = min(first[number] for number in link.inputs)
        joined = {first[number] for number in link.inputs}
        first = [least if part in joined else part for part in first]
    return sorted(set(first))


def link_columns(key: tuple[KeyPart, ...]) -> tuple[str, ...]:
    """Name the columns in which a log stores another key: its hash, and its parts if the hash is not the whole key.

    >>> link_columns((KeyPart("k", "bigint"),))
    ('penstock.xbcdec90a',)
    """
    name = f"{LINK}{crc32(key_text(key).encode()):08x}"
    parts = () if is_whole(key) else tuple(f"{name}.{number}" for number in range(len(key)))
    return (name, *parts)


def columns_of_input(number: int, links: Iterable[Link]) -> frozenset[str]:
    """Name the key columns that the logs of an input store: none if it has only one key, by which it is sorted."""
    keys = [link.key(number) for link in links if number in link.inputs]
    return frozenset(name for key in keys for name in link_columns(key)) if len(keys) > 1 else frozenset()


def is_link_column(name: str) -> bool:
    """Check whether a stored column is not of the stream: another key of a row, or its position."""
    return name.startswith(LINK) or name == POSITION
