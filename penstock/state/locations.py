"""Where a path that a user wrote leads: one directory is one value, however it is written.

    out/q    file:///data/out/q    file:/data/out/q    a link to it    OUT/Q where case is ignored

all name one directory, and two queries that write there would overwrite each other's files.  A path is made absolute
when it is first seen (`absolute`), and compared by what it leads to (`directory_of`): the directories that exist on the
way, each by device and inode, then the names that are still to be made.

Spark takes every path that it reads for a pattern.  `literal` writes a path so that it stands for itself only, and
`source_pattern` tells whether a source's path is meant as a pattern or is the name of a directory.

In:  paths as users write them.  Out: absolute paths and urls, values to compare them by, patterns for Spark.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote, urlsplit

import fsspec
from fsspec.core import url_to_fs

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs", "wasbs": "wasb"}
"""Drivers that reach the same objects under another name."""

_ONE_PROCESS = frozenset({"memory"})
"""Filesystems that only the process which made them can see."""


def absolute(path: str) -> str:
    """Write a path so that it means the same from everywhere: a plain absolute one, or a url.

    >>> absolute("file:/data//out/"), absolute("file:///data/out"), absolute("/data/x/../out")
    ('/data/out', '/data/out', '/data/out')
    >>> absolute("S3://bucket/out/")
    's3://bucket/out'
    """
    if not path.strip() or "\0" in path:
        raise InputError(f"path {path!r} names nothing: give a directory")
    scheme, rest = _split(path)
    if scheme == "file":
        return _local(path, rest)
    if not scheme:
        return os.path.abspath(os.path.expanduser(path))
    return f"{scheme}:{rest.rstrip('/')}"


def _split(path: str) -> tuple[str, str]:
    """Split a url into scheme and rest; a plain path has no scheme, even if its first name has a colon in it."""
    parts = _SCHEME.fullmatch(path)
    if parts is None:
        return "", path
    scheme, rest = parts[1].lower(), parts[2]
    if scheme == "file" or rest.startswith("//"):
        return scheme, rest
    if scheme in fsspec.available_protocols() or scheme in _SAME_STORE:
        raise InputError(f"path {path!r} is half a url: write {scheme}://… in full")
    return "", path


def _local(path: str, rest: str) -> str:
    """Read what follows ``file:``; Hadoop writes one slash, browsers write three."""
    if rest.lower().startswith("//localhost/"):
        rest = rest[len("//localhost") :]
    if not rest.startswith("/"):
        raise InputError(
            f"path {path!r} is relative, which a file: url cannot be: write file:///… or leave file: out"
        )
    if rest.startswith("//") and not rest.startswith("///"):
        raise InputError(f"path {path!r} names the machine {rest[2:].partition('/')[0]!r}: write file:///…")
    return os.path.normpath("/" + rest.lstrip("/"))


def is_local(location: str) -> bool:
    """Say whether an absolute location is a path of this machine."""
    return location.startswith("/")


def refuse_one_process(location: str, what: str) -> None:
    """Refuse a filesystem that Spark's processes cannot see."""
    scheme = urlsplit(location).scheme
    if scheme in _ONE_PROCESS:
        raise InputError(
            f"{what} cannot be on {scheme}://, which only one process sees, and Spark runs several: "
            "give a directory, or a store that all of them reach"
        )


# --- comparing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Directory:
    """What a path leads to: a trail of what identifies each step from the root on."""

    trail: tuple[object, ...]

    def holds(self, other: Directory) -> bool:
        """Say whether the other one is this one, or somewhere below it."""
        return other.trail[: len(self.trail)] == self.trail

    def overlaps(self, other: Directory) -> bool:
        """Say whether one of the two is, or lies below, the other."""
        return self.holds(other) or other.holds(self)


def directory_of(location: str) -> Directory:
    """Say what an absolute location leads to.

    >>> directory_of("s3a://b/x/") == directory_of("s3://b//x"), directory_of("s3://b/x").holds(directory_of("s3://b/x/y"))
    (True, True)
    """
    if is_local(location):
        return Directory(tuple(_steps(os.path.realpath(location))))
    url = urlsplit(location)
    names = [name for name in url.path.split("/") if name]
    return Directory((_SAME_STORE.get(url.scheme, url.scheme), url.netloc, *names))


def _steps(path: str) -> Iterator[object]:
    """Identify each directory on the way: by inode while they exist, then by the names still to be made."""
    ignores_case, at = False, "/"
    for name in ["", *path.strip("/").split("/")]:
        at = os.path.join(at, name)
        try:
            there = os.stat(at)
        except OSError:
            yield unicodedata.normalize("NFC", name).casefold() if ignores_case else name
        else:
            yield there.st_dev, there.st_ino
            ignores_case = _ignores_case(at, there) if name else False


def _ignores_case(path: str, there: os.stat_result) -> bool:
    """Say whether the directory that holds this one finds it under another case too."""
    parent, name = os.path.split(path)
    other = os.path.join(parent, name.swapcase())
    if name == name.swapcase():
        return False
    try:
        return os.path.samestat(there, os.stat(other))
    except OSError:
        return False


# --- patterns ---------------------------------------------------------------------------------------------------

_WILDCARDS = frozenset("*?[{")


def literal(location: str) -> str:
    r"""Write a location as a pattern that matches itself only, as Spark takes what it reads for patterns.

    >>> print(literal("file:///data/run[1]"))
    file:///data/run\[1\]
    """
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", location)


def source_pattern(path: str, stream: str) -> str:
    """Give what Spark should read for a stream's path: a pattern, or a directory's own name; refuse what is not there.

    A path with wildcards is the directory of exactly that name if there is one, unless as a pattern it also matches
    others.
    """
    location = absolute(path)
    there = _exists(location)
    if not is_pattern(location):
        return location if there else _refuse_missing(path, stream)
    if not there:
        return location if matches(location) else _refuse_missing(path, stream)
    if _is_broken(location):
        return literal(location)
    others = [each for each in matches(location) if directory_of(each) != directory_of(location)]
    if others:
        raise InputError(
            f"path {path!r} of stream {stream} is the name of a directory, and a pattern that also matches "
            f"{others[0]}: write {literal(path)!r} for the directory alone"
        )
    return literal(location)


def _refuse_missing(path: str, stream: str) -> NoReturn:
    raise InputError(
        f"path {path!r} of stream {stream} does not exist: create the directory, or mend the path"
    )


def is_pattern(location: str) -> bool:
    """Say whether a location has wildcards, or escapes of them."""
    return bool(_WILDCARDS & set(location)) or "\\" in location


def _is_broken(pattern: str) -> bool:
    """Say whether a pattern cannot be one: what looks like it is then a name."""
    try:
        _alternatives(_signs(pattern))
    except InputError:
        return True
    return False


def _exists(location: str) -> bool:
    files, where = url_to_fs(location)
    return bool(files.exists(where))


def matches(pattern: str) -> list[str]:
    """List what a pattern of Hadoop's matches, as absolute locations."""
    files, where = url_to_fs(pattern)
    names = {name for each in _alternatives(_signs(where)) for name in files.glob(_as_fsspec(each))}
    return sorted(absolute(files.unstrip_protocol(name)) for name in names)


def files_below(pattern: str) -> set[str]:
    """List the files that a source reads by a pattern now, hidden ones left out."""
    names: set[str] = set()
    for location in matches(pattern) if is_pattern(pattern) else [pattern]:
        files, where = url_to_fs(location)
        names |= {absolute(files.unstrip_protocol(name)) for name in files.find(where)}
    return {name for name in names if not name.rpartition("/")[2].startswith(("_", "."))}


def local_path(url: str) -> str:
    """Return the path of a file on this machine, from a url as Spark writes it; empty if it is elsewhere.

    >>> local_path("file:///data/in/a%20b.parquet"), local_path("s3a://bucket/x")
    ('/data/in/a b.parquet', '')
    """
    parts = urlsplit(url)
    here = parts.scheme == "file" and not parts.netloc and not parts.query and not parts.fragment
    return unquote(parts.path) if here else ""


def local_files(pattern: str) -> Iterator[str]:
    """List the files of this machine that a source reads by a pattern now, hidden ones left out, whatever they are."""
    for location in filter(is_local, matches(pattern) if is_pattern(pattern) else [pattern]):
        if not os.path.isdir(location):
            yield location
        for folder, folders, names in os.walk(location):
            folders[:] = (name for name in folders if not name.startswith(("_", ".")))
            yield from (os.path.join(folder, name) for name in names if not name.startswith(("_", ".")))


def irregular(paths: Iterable[str]) -> str:
    """Return the first path of a pipe, a socket or a device; empty if there is none.  To read one may never end."""
    for path in paths:
        with suppress(OSError):  # it is gone, or a link to nowhere
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return path
    return ""


def _signs(pattern: str) -> list[str]:
    r"""Cut a pattern into its signs, each with the backslash that escapes it.

    >>> _signs(r"a\*b")
    ['a', '\\*', 'b']
    """
    return re.findall(r"\\.|.", pattern, re.DOTALL)


def _alternatives(signs: Sequence[str]) -> list[list[str]]:
    """Write out the choices of ``{a,b}``; they may be nested.

    >>> ["".join(each) for each in _alternatives("x/{a,b{1,2}}/y")]
    ['x/a/y', 'x/b1/y', 'x/b2/y']
    """
    if "{" not in signs:
        return [list(signs)]
    start, depth = signs.index("{"), 0
    cuts = [start]
    for at in range(start + 1, len(signs)):
        if depth == 0 and signs[at] in {",", "}"}:
            cuts.append(at)
        if depth == 0 and signs[at] == "}":
            choices = [signs[first + 1 : last] for first, last in pairwise(cuts)]
            before, after = signs[:start], signs[at + 1 :]
            return [each for choice in choices for each in _alternatives([*before, *choice, *after])]
        depth += (signs[at] == "{") - (signs[at] == "}")
    raise InputError(
        f"path {''.join(signs)!r} has a {{ that is never closed: write \\{{ where it is part of a name"
    )


def _as_fsspec(signs: Sequence[str]) -> str:
    r"""Write a pattern of Hadoop's as Python's, which negates sets otherwise and knows no backslash.

    >>> print(_as_fsspec(_signs(r"run\[1\]/[^a]*")))
    run[[]1]/[!a]*
    """
    return "".join(_one_sign(sign) for sign in signs).replace("[^", "[!")


def _one_sign(sign: str) -> str:
    """Write one sign; an escaped wildcard is a set of itself alone."""
    if len(sign) == 1:
        return sign
    return f"[{sign[1]}]" if sign[1] in "*?[" else sign[1]
