"""Make half an hour of readings of twelve rooms: data/temperature and data/humidity, three Parquet files each."""  # noqa: INP001

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOMS, EVERY, MINUTES, FILES = 12, 15, 10, 3
START = 1_704_096_000  # 2024-01-01 08:00:00 UTC
rng = np.random.default_rng(3)

for file in range(FILES):
    room = np.repeat(np.arange(ROOMS), MINUTES * 60 // EVERY)
    second = np.tile(np.arange(0, MINUTES * 60, EVERY), ROOMS) + file * MINUTES * 60
    temperature = 3.0 * room - 2 + rng.normal(0, 1.5, room.size)
    humidity = np.clip(82 - 1.5 * temperature + rng.normal(0, 6, room.size), 0, 100)
    for name, value in {"temperature": temperature, "humidity": humidity}.items():
        micros = (START + second) * 1_000_000 + rng.integers(0, EVERY * 1_000_000, room.size)
        order = np.argsort(micros)
        ts = pa.array(micros[order], pa.timestamp("us", "UTC"))
        rows = pa.table({"Room": room[order], "Value": value[order].round(1), "ts": ts})
        path = Path("data", name, f"{file}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
        os.utime(path, (START + file, START + file))  # Spark reads files in the order of their dates
