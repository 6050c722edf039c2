"""Every ten minutes, the humidity of cold rooms over the last half hour.  Run make_readings.py first."""  # noqa: INP001

import penstock

SCHEMA = "Room BIGINT, Value DOUBLE, ts TIMESTAMP"

with penstock.Engine(state=".penstock/humid") as engine:
    for name in ("Temperature", "Humidity"):
        source = engine.spark.readStream.schema(SCHEMA).parquet(f"data/{name.lower()}")
        engine.stream(name, source, time="ts", lateness="5 seconds")
    humid = engine.query(
        "humid",
        """
        SELECT T.Room, MIN(T.Value) AS coldest, MAX(H.Value) AS most_humid, COUNT(*) AS pairs
        FROM Temperature T JOIN Humidity H ON T.Room = H.Room
        WHERE T.Value < 0
        GROUP BY T.Room
        WINDOW 30 minutes EVERY 10 minutes
        """,
    )
    engine.start(once=True)
    engine.wait()
    humid.results().orderBy("window_end", "Room").show()
