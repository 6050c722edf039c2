CREATE STREAM Temperature (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/temperature', time = 'ts', lateness = '5 seconds', maxFilesPerTrigger = '1');
CREATE STREAM Humidity (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/humidity', time = 'ts', lateness = '5 seconds', maxFilesPerTrigger = '1');

-- warm, then damp, then three degrees cooler, within two minutes: a window was opened
CREATE QUERY aired AS
SELECT W.Room, W.Value AS warm, H.Value AS damp, C.Value AS cooler, C.ts AS at
FROM Temperature W, Humidity H, Temperature C
WHERE W.Room = H.Room AND H.Room = C.Room
  AND W.Value > 15 AND H.Value > 60 AND C.Value < W.Value - 3 AND W.ts < H.ts AND H.ts < C.ts
WINDOW 2 minutes;
