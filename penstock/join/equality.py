"""Compare the keys themselves, where equal hashes do not yet mean equal keys.

In:  pairs found by hash, and the key columns of both segments.
Out: the pairs whose keys are equal in every column, as Spark's ``=`` has it: NaN equals NaN.  Rows with a null
in their key never get this far; ingest leaves them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.join.probe import Pairs


def with_equal_keys(found: Pairs, batch: Sequence[pa.Array], state: Sequence[pa.Array]) -> Pairs:
    """Keep the pairs whose real keys are equal, column by column."""
    same = np.ones(len(found), np.bool_)
    for mine, theirs in zip(batch, state, strict=True):
        same &= _equal(mine.take(pa.array(found.batch)), theirs.take(pa.array(found.state)))
    return found if same.all() else found.only(same)


def _equal(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Compare two columns value by value."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False)
