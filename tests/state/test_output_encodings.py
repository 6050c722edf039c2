"""However columns are encoded, every reader reads the rows that were written; and what can be small is."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.state.output_file import DELTA, OutputFile, writer_options
from tests.kernels.drawn import examples

TYPES = {
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "day": pa.date32(),
    "span": pa.duration("us"),
    "real": pa.float64(),
    "float": pa.float32(),
    "amount": pa.decimal128(20, 2),
    "text": pa.string(),
    "bytes": pa.binary(),
    "flag": pa.bool_(),
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.int32()),
    "side": pa.struct(
        {"k": pa.int64(), "deep": pa.struct({"at": pa.timestamp("us"), "many": pa.list_(pa.int32())})}
    ),
    "void": pa.null(),
}


def values(random, kind, count, bits):
    """Make values of a type from random numbers of so many bits, one in nine of them null."""
    if pa.types.is_struct(kind):
        fields = [values(random, each.type, count, bits) for each in kind]
        return pa.StructArray.from_arrays(
            fields, fields=list(kind), mask=pa.array(random.random(count) < 0.1)
        )
    if pa.types.is_null(kind):
        return pa.nulls(count)
    width = kind.bit_width if pa.types.is_primitive(kind) else 32
    most = min(bits, width - 1, _most_bits(kind))
    numbers = random.integers(-(1 << most), (1 << most) - 1, count, endpoint=True)
    nulls = random.random(count) < 0.1
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return pa.array(numbers, pa.int64(), mask=nulls).cast(kind_of_width(kind)).view(kind)
    return pa.array(
        [None if no else _value(kind, int(each)) for each, no in zip(numbers, nulls, strict=True)], kind
    )


def _most_bits(kind):
    """Keep to times that all readers know."""
    if pa.types.is_date(kind):
        return 19
    return 50 if pa.types.is_temporal(kind) else 63


def kind_of_width(kind):
    """Give the whole numbers that are as wide as some type."""
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]


def _value(kind, number):
    if pa.types.is_map(kind):
        return [(str(each), number) for each in range(number % 3)]
    if pa.types.is_list(kind):
        return [number] * (number % 4)
    if pa.types.is_floating(kind):
        return number / 3
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    if pa.types.is_binary(kind):
        return str(number).encode()
    return str(number) if pa.types.is_string(kind) else number


@examples(40)
@given(
    names=st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=6, unique=True),
    bits=st.tuples(*[st.sampled_from((0, 3, 12, 20, 33, 63))] * 2),
    seed=st.integers(0, 10**9),
    compression=st.sampled_from(("snappy", "none", "zstd")),
)
def test_every_reader_reads_what_was_written(tmp_path_factory, names, bits, seed, compression):
    random, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("files")
    file, written = OutputFile(str(folder), "x.parquet", compression, kept=True), []
    for count, wide in ((limits.ENCODING_SAMPLE_ROWS - seed % 2, bits[0]), (300, bits[1]), (1, 63)):
        written.append(pa.record_batch({name: values(random, TYPES[name], count, wide) for name in names}))
        file.write(written[-1])
        file.flush()
    file.close()
    path, wanted = folder / "x.parquet", pa.Table.from_batches(written)
    assert pq.read_table(path, page_checksum_verification=True).equals(wanted)
    plain = [name for name in names if name not in {"void", "map", "span"}]
    if plain:
        columns = ", ".join(f'"{name}"' for name in plain)
        found = duckdb.sql(f"SELECT {columns} FROM '{path}'").to_arrow_table()
        for name in plain:
            assert found.column(name).cast(wanted.schema.field(name).type).equals(wanted.column(name)), name


@pytest.mark.parametrize(
    ("column", "as_differences"),
    [
        (pa.array(np.arange(limits.ENCODING_SAMPLE_ROWS) % 50), True),
        (pa.array(np.arange(limits.ENCODING_SAMPLE_ROWS) * 1000), True),
        (pa.array(np.arange(limits.ENCODING_SAMPLE_ROWS, dtype=np.int32) * 7919 % 50_000), True),
        (pa.array([None, 10**15, 10**15 + 10**9], pa.timestamp("us", "UTC")), True),
        (pa.array([None, 20_000, 20_001], pa.date32()), True),
        (pa.array([1, 1 << 60] * limits.ENCODING_SAMPLE_ROWS), False),
        (
            pa.array(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, limits.ENCODING_SAMPLE_ROWS)),
            False,
        ),
        (pa.array(np.random.default_rng(1).random(limits.ENCODING_SAMPLE_ROWS)), False),
        (pa.array([str(number) for number in range(limits.ENCODING_SAMPLE_ROWS)]), False),
        (pa.nulls(limits.ENCODING_SAMPLE_ROWS, pa.int64()), False),
    ],
)
def test_integers_in_a_narrow_range_are_written_as_differences(column, as_differences):
    for table, path in (pa.table({"x": column}), "x"), (pa.table({"s": in_struct(x=column)}), "s.x"):
        chosen = writer_options(table)
        assert chosen["use_dictionary"] == ([] if as_differences else [path])
        assert chosen["column_encoding"] == ({path: DELTA} if as_differences else {})


def in_struct(**columns):
    """Make one column of several."""
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def test_names_that_cannot_be_told_apart_are_left_alone():
    rising = pa.array(np.arange(limits.ENCODING_SAMPLE_ROWS))
    inner = in_struct(b=pa.array([str(each) for each in range(limits.ENCODING_SAMPLE_ROWS)]))
    twice = pa.Table.from_arrays([rising, rising.cast(pa.string())], ["a", "a"])
    for table in (pa.table({"a.b": rising, "a": inner}), twice):
        assert set(writer_options(table)) == {"dictionary_pagesize_limit"}


def test_values_in_lists_and_maps_have_dictionaries():
    lists = pa.array([[{"x": number, "y": "a"}] for number in range(9)])
    maps = pa.array([[("k", number)] for number in range(9)], pa.map_(pa.string(), pa.int64()))
    chosen = writer_options(pa.table({"s": in_struct(k=pa.array(range(9)), many=lists), "map": maps}))
    assert chosen["column_encoding"] == {"s.k": DELTA}
    assert chosen["use_dictionary"] == [
        "s.many.list.element.x",
        "s.many.list.element.y",
        "map.key_value.key",
        "map.key_value.value",
    ]


def test_keys_and_times_take_the_bits_that_they_need(tmp_path):
    random = np.random.default_rng(7)
    micros = 1_700_000_000_000_000 + random.integers(0, 40_000_000, limits.MAX_ROWS_PER_ROW_GROUP)
    keys = random.integers(0, 50_000, limits.MAX_ROWS_PER_ROW_GROUP)
    file = OutputFile(str(tmp_path), "x.parquet", kept=True)
    file.write(pa.record_batch({"k": keys, "ts": pa.array(micros, pa.timestamp("us", "UTC"))}))
    file.close()
    group = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0)
    key, time = (
        group.column(number).total_compressed_size / limits.MAX_ROWS_PER_ROW_GROUP for number in range(2)
    )
    assert key < 2.3
    assert time < 3.5
