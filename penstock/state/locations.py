"""Paths as users write them: absolute form, comparison, and patterns for Spark.

    out/q    file:///data/out/q    file:/data/out/q    a link to it    OUT/Q where case is ignored

All of these name one directory, and two queries that write there would overwrite each other's files.  So every path is
made absolute at once (`absolute`).  Two paths are compared by their directories (`directory_of`): existing directories
by device and inode, the others by name.

Spark's readers take every path as a pattern.  `literal` writes a path that matches itself only; `source_pattern`
decides whether a source's path is a pattern or the name of a directory.

In:  paths as users write them.  Out: absolute paths and urls, values to compare, patterns for Spark.
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
"""Filesystems that exist in one process only."""


def absolute(path: str) -> str:
    """Return a path that is independent of the working directory: absolute, or a url.

    >>> absolute("file:/data//out/"), absolute("file:///data/out"), absolute("/data/x/../out")
    ('/data/out', '/data/out', '/data/out')
    >>> absolute("S3://bucket/out/")
    's3://bucket/out'
    """
    if not path.strip() or "\0" in path:
        raise InputError(f"path {path!r} is empty, or has a null character. Give a directory")
    scheme, rest = _split(path)
    if scheme == "file":
        return _local(path, rest)
    if not scheme:
        return os.path.abspath(os.path.expanduser(path))
    return f"{scheme}:{rest.rstrip('/')}"


def _split(path: str) -> tuple[str, str]:
    """Split a url into scheme and rest; a plain path has no scheme, even if it has a colon."""
    parts = _SCHEME.fullmatch(path)
    if parts is None:
        return "", path
    scheme, rest = parts[1].lower(), parts[2]
    if scheme == "file" or rest.startswith("//"):
        return scheme, rest
    if scheme in fsspec.available_protocols() or scheme in _SAME_STORE:
        raise InputError(f"path {path!r} is an incomplete url. Write {scheme}://…")
    return "", path


def _local(path: str, rest: str) -> str:
    """Parse the part after ``file:``; Hadoop writes one slash, browsers write three."""
    if rest.lower().startswith("//localhost/"):
        rest = rest[len("//localhost") :]
    if not rest.startswith("/"):
        raise InputError(
            f"path {path!r} is relative, and a file: url is absolute. Write file:///… or omit file:"
        )
    if rest.startswith("//") and not rest.startswith("///"):
        raise InputError(f"path {path!r} names the host {rest[2:].partition('/')[0]!r}. Write file:///…")
    return os.path.normpath("/" + rest.lstrip("/"))


def is_local(location: str) -> bool:
    """Return whether an absolute location is a local path."""
    return location.startswith("/")


def refuse_one_process(location: str, what: str) -> None:
    """Refuse a filesystem that Spark's processes cannot see."""
    scheme = urlsplit(location).scheme
    if scheme in _ONE_PROCESS:
        raise InputError(
            f"{what} cannot be on {scheme}://, which exists in one process only. "
            "Give a directory, or a store that all of Spark's processes reach"
        )


# --- comparing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Directory:
    """The identity of a directory: its trail of directories from the root."""

    trail: tuple[object, ...]

    def holds(self, other: Directory) -> bool:
        """Return whether the other directory is this one, or below it."""
        return other.trail[: len(self.trail)] == self.trail

    def overlaps(self, other: Directory) -> bool:
        """Return whether one of the two holds the other."""
        return self.holds(other) or other.holds(self)


def directory_of(location: str) -> Directory:
    """Return the directory of an absolute location.

    >>> directory_of("s3a://b/x/") == directory_of("s3://b//x"), directory_of("s3://b/x").holds(directory_of("s3://b/x/y"))
    (True, True)
    """
    if is_local(location):
        return Directory(tuple(_steps(os.path.realpath(location))))
    url = urlsplit(location)
    names = [name for name in url.path.split("/") if name]
    return Directory((_SAME_STORE.get(url.scheme, url.scheme), url.netloc, *names))


def _steps(path: str) -> Iterator[object]:
    """Identify each directory of a path: existing ones by inode, the others by name."""
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
    """Return whether the parent directory finds this one under another case too."""
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
    r"""Write a location as a pattern that matches itself only.

    >>> print(literal("file:///data/run[1]"))
    file:///data/run\[1\]
    """
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", location)


def source_pattern(path: str, stream: str) -> str:
    """Return the pattern that Spark reads for a stream's path; refuse a path that matches nothing.

    A path with wildcards is a directory if there is one of exactly that name, and it is refused if other directories
    match it too.
    """
    location = absolute(path)
    there = _exists(location)
    if not is_pattern(location):
        return location if there else _refuse_missing(path, stream)
    if not there:
        return location if matches(location) else _refuse_missing(path, stream)
    if _is_broken(location):
        return literal(location)
    others = [match for match in matches(location) if directory_of(match) != directory_of(location)]
    if others:
        raise InputError(
            f"path {path!r} of stream {stream} is the name of a directory, and a pattern that also matches "
            f"{others[0]}. Write {literal(path)!r} for the directory alone"
        )
    return literal(location)


def _refuse_missing(path: str, stream: str) -> NoReturn:
    raise InputError(
        f"path {path!r} of stream {stream} does not exist. Create the directory, or correct the path"
    )


def is_pattern(location: str) -> bool:
    """Return whether a location has wildcards or escapes."""
    return bool(_WILDCARDS & set(location)) or "\\" in location


def _is_broken(pattern: str) -> bool:
    """Return whether a pattern has a syntax error, so that it can only be a name."""
    try:
        _alternatives(_signs(pattern))
    except InputError:
        return True
    return False


def _exists(location: str) -> bool:
    files, where = url_to_fs(location)
    return bool(files.exists(where))


def matches(pattern: str) -> list[str]:
    """List the matches of a Hadoop pattern, as absolute locations."""
    files, where = url_to_fs(pattern)
    names = {name for choice in _alternatives(_signs(where)) for name in files.glob(_as_fsspec(choice))}
    return sorted(absolute(files.unstrip_protocol(name)) for name in names)


def files_below(pattern: str) -> set[str]:
    """List the files that a source reads by a pattern now, without hidden ones."""
    names: set[str] = set()
    for location in matches(pattern) if is_pattern(pattern) else [pattern]:
        files, where = url_to_fs(location)
        names |= {absolute(files.unstrip_protocol(name)) for name in files.find(where)}
    return {name for name in names if not name.rpartition("/")[2].startswith(("_", "."))}


def local_path(url: str) -> str:
    """Return the local path of a url as Spark writes it; empty if the file is remote.

    >>> local_path("file:///data/in/a%20b.parquet"), local_path("s3a://bucket/x")
    ('/data/in/a b.parquet', '')
    """
    parts = urlsplit(url)
    here = parts.scheme == "file" and not parts.netloc and not parts.query and not parts.fragment
    return unquote(parts.path) if here else ""


def local_files(pattern: str) -> Iterator[str]:
    """List the local files of any kind that a source reads by a pattern now, without hidden ones."""
    for location in filter(is_local, matches(pattern) if is_pattern(pattern) else [pattern]):
        if not os.path.isdir(location):
            yield location
        for folder, folders, names in os.walk(location):
            folders[:] = (name for name in folders if not name.startswith(("_", ".")))
            yield from (os.path.join(folder, name) for name in names if not name.startswith(("_", ".")))


def irregular(paths: Iterable[str]) -> str:
    """Return the first path of a pipe, socket or device, whose read may never end; empty if there is none."""
    for path in paths:
        with suppress(OSError):  # deleted meanwhile, or a broken link
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return path
    return ""


def _signs(pattern: str) -> list[str]:
    r"""Split a pattern into characters, each with its escaping backslash.

    >>> _signs(r"a\*b")
    ['a', '\\*', 'b']
    """
    return re.findall(r"\\.|.", pattern, re.DOTALL)


def _alternatives(signs: Sequence[str]) -> list[list[str]]:
    """Expand the alternatives ``{a,b}``, which may be nested.

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
            return [
                alternative for choice in choices for alternative in _alternatives([*before, *choice, *after])
            ]
        depth += (signs[at] == "{") - (signs[at] == "}")
    raise InputError(
        f"path {''.join(signs)!r} has a {{ that is never closed. Write \\{{ if it is part of a name"
    )


def _as_fsspec(signs: Sequence[str]) -> str:
    r"""Translate a Hadoop pattern to Python's syntax: another negation of sets, and no backslash.

    >>> print(_as_fsspec(_signs(r"run\[1\]/[^a]*")))
    run[[]1]/[!a]*
    """
    return "".join(_one_sign(sign) for sign in signs).replace("[^", "[!")


def _one_sign(sign: str) -> str:
    """Translate one character; an escaped wildcard becomes a set of one."""
    if len(sign) == 1:
        return sign
    return f"[{sign[1]}]" if sign[1] in "*?[" else sign[1]
