"""A file of results says what Spark needs to know of its columns, and holds whatever Arrow's columns hold."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.tasks.merge import CONFLICT, MergeTask
from penstock.state.files import open_files
from penstock.state.output_file import OutputFile, shape_of
from penstock.state.spark_schema import SPARK_SCHEMA, loosened
from penstock.state.tables import FileMerge
from tests.kernels.drawn import examples

DAY, SECOND = "interval day", "interval day to second"


def note(**kinds):
    """Describe columns as Spark does."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {SPARK_SCHEMA: json.dumps({"type": "struct", "fields": fields}).encode()}


def write(folder, name, columns, metadata=None):
    out = OutputFile(str(folder), name, kept=True)
    out.write(pa.RecordBatch.from_pydict(columns).replace_schema_metadata(metadata))
    out.close()
    return out.report("q").kept


def described(folder, name):
    text = pq.read_schema(folder / name).metadata.get(SPARK_SCHEMA)
    return None if text is None else {each["name"]: each["type"] for each in json.loads(text)["fields"]}


def gaps(*values):
    return pa.array(values, pa.duration("us"))


def merge(folder, *files):
    made = MergeTask(FileMerge(files, "merged-", 1)).run(open_files(str(folder)))
    if made == CONFLICT:
        return made
    (folder / made.name).rename(folder / "merged.parquet")
    return described(folder, "merged.parquet")


def test_merged_files_are_described_as_their_parts_are(tmp_path):
    one = write(tmp_path, "1.parquet", {"gap": gaps(1)}, note(gap=SECOND))
    two = write(
        tmp_path, "2.parquet", {"gap": gaps(2), "s": ["x"]}, note(gap=SECOND, s="string collate UNICODE")
    )
    assert merge(tmp_path, one, two) == {"gap": SECOND, "s": "string collate UNICODE"}
    assert pq.read_table(tmp_path / "merged.parquet").column("gap").to_pylist() == gaps(1, 2).to_pylist()


def test_files_that_say_nothing_are_merged_into_one_that_says_nothing(tmp_path):
    assert merge(tmp_path, *(write(tmp_path, f"{n}.parquet", {"n": [n]}) for n in range(3))) is None


@pytest.mark.parametrize(
    "other", [({"gap": gaps(1)}, note(gap=DAY)), ({"s": ["x"]}, None), ({"gap": [1]}, None)]
)
def test_files_whose_columns_spark_would_read_otherwise_stay_apart(tmp_path, other):
    one = write(tmp_path, "1.parquet", {"gap": gaps(1)}, note(gap=SECOND))
    assert merge(tmp_path, one, write(tmp_path, "2.parquet", *other)) == CONFLICT


def test_columns_of_two_types_to_spark_are_two_shapes():
    schema = pa.schema({"gap": pa.duration("us")})
    shapes = {shape_of(schema.with_metadata(each)) for each in (None, note(gap=DAY), note(gap=SECOND))}
    assert len(shapes) == 3


# --- whatever Arrow's columns hold ------------------------------------------------------------------------------

VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
SCALARS = st.sampled_from([pa.int32(), pa.string(), pa.duration("us"), pa.binary(), VARIANT])


def fields(kind):
    return st.builds(lambda nullable: pa.field("x", kind, nullable), st.booleans())


def nested(kinds):
    return st.one_of(
        st.lists(st.tuples(kinds, st.booleans()), min_size=1, max_size=3).map(
            lambda parts: pa.struct([pa.field(f"f{n}", *part) for n, part in enumerate(parts)])
        ),
        kinds.flatmap(fields).map(pa.list_),
        kinds.map(lambda kind: pa.map_(pa.string(), kind)),
    )


FLAT = SCALARS | nested(SCALARS)
TYPES = FLAT | nested(FLAT)


def array(draw, kind, rows, *, nullable):
    """Draw values of a type; below a null struct all is null, as Spark has it, whether it may be or not."""
    null = [nullable and draw(st.booleans()) for _ in range(rows)]
    if pa.types.is_struct(kind):
        parts = [array(draw, field.type, rows, nullable=field.nullable) for field in kind]
        mask = pa.array(null, pa.bool_())
        gone = pa.array([None if each else number for number, each in enumerate(null)], pa.int64())
        return pa.StructArray.from_arrays([part.take(gone) for part in parts], fields=list(kind), mask=mask)
    if pa.types.is_nested(kind):
        sizes = [0 if each else draw(st.integers(0, 2)) for each in null]
        ends = pa.array([sum(sizes[:number]) for number in range(rows + 1)], pa.int32())
        mask = pa.array(null, pa.bool_())
        if pa.types.is_map(kind):
            keys = pa.array([f"k{number}" for number in range(sum(sizes))], pa.string())
            items = array(draw, kind.item_type, sum(sizes), nullable=True)
            return pa.MapArray.from_arrays(ends, keys, items, type=kind, mask=mask)
        values = array(draw, kind.value_type, sum(sizes), nullable=kind.value_field.nullable)
        return pa.ListArray.from_arrays(ends, values, type=kind, mask=mask)
    values = pa.array([None if each else number for number, each in enumerate(null)], pa.int64())
    if pa.types.is_binary(kind):
        return values.cast(pa.string()).cast(kind)
    return values.cast(pa.int32()).cast(kind) if pa.types.is_int32(kind) else values.cast(kind)


@examples(150)
@given(st.data(), st.lists(TYPES, min_size=1, max_size=2), st.integers(1, 4))
def test_a_null_struct_is_written_whatever_its_fields_may_be(data, kinds, rows):
    """Also as a part of a batch, and inside lists and maps."""
    columns = {f"c{n}": array(data.draw, kind, rows, nullable=True) for n, kind in enumerate(kinds)}
    table = pa.table(columns).slice(data.draw(st.integers(0, rows - 1)))
    loose = loosened(table)
    loose.validate(full=True)
    file = io.BytesIO()
    pq.write_table(loose, file)
    assert pq.read_table(file).to_pylist() == table.to_pylist()
    assert loosened(loose).schema == loose.schema


def test_a_variant_keeps_the_fields_that_spark_looks_for():
    values = pa.array([{"value": b"1", "metadata": b"2"}], VARIANT)
    assert loosened(
        pa.table({"v": values, "l": pa.array([values.to_pylist()], pa.list_(VARIANT))})
    ).schema == (pa.schema({"v": VARIANT, "l": pa.list_(VARIANT)}))
