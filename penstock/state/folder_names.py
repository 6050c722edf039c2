"""Names of queries and streams as names of directories: safe on every filesystem, and never two the same.

A name may be anything that SQL can quote: ``a/b``, ``..``, ``é``, three hundred characters.  A directory's name is not
so free, and some filesystems ignore case::

    fast_2       fast_2                      plain names stay as they are
    Fast_2       fast_2                      names are unique whatever their case, so this is the same one
    a/b          a_b-0debd2558bca8fa0        all others: what is readable of them, and a digest of the whole
    ..           -34f0828231260469

A plain name has no hyphen, so it is never one that was made; made ones differ by their digests.

In:  the name of a query or stream.  Out: one safe path component, or a directory with it.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from penstock import limits

_PLAIN_NAME = re.compile(rf"[a-z0-9_]{{1,{limits.MAX_FOLDER_NAME_CHARACTERS}}}")
_READABLE_CHARACTERS = 40


def safe_name(name: str) -> str:
    """Give the name of the directory for a query or stream.

    >>> safe_name("Fast_2"), safe_name("a/b"), safe_name("..")
    ('fast_2', 'a_b-0debd2558bca8fa0', '-34f0828231260469')
    """
    lowered = name.lower()
    if _PLAIN_NAME.fullmatch(lowered):
        return lowered
    readable = re.sub(r"[^a-z0-9]+", "_", lowered).strip("_")[:_READABLE_CHARACTERS]
    return f"{readable}-{blake2b(lowered.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


def folder_of(kind: str, name: str) -> str:
    """Return the directory where a state keeps what belongs to a query or stream."""
    return f"{kind}/{safe_name(name)}"
