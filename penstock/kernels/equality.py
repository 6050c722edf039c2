"""Compare the keys themselves, where equal hashes do not yet mean equal keys.

In:  pairs of equal hashes, and the key columns of both segments.
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

    from penstock.kernels.probe import Pairs


def with_equal_keys(pairs: Pairs, batch: Sequence[pa.Array], state: Sequence[pa.Array]) -> Pairs:
    """Keep the pairs whose real keys are equal, column by column."""
    same = np.ones(len(pairs), np.bool_)
    for batch_key, state_key in zip(batch, state, strict=True):
        same &= equal_values(batch_key.take(pa.array(pairs.batch)), state_key.take(pa.array(pairs.state)))
    return pairs if same.all() else pairs.only(same)


def equal_values(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Say which values of two columns are equal, one by one."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False)
