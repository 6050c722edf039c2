CREATE STREAM Temperature (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/temperature', time = 'ts', lateness = '5 seconds', maxFilesPerTrigger = '1');
CREATE STREAM Humidity (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/humidity', time = 'ts', lateness = '5 seconds', maxFilesPerTrigger = '1');

-- pairs of readings of a room, less than 10 seconds apart
CREATE QUERY climate AS
SELECT T.Room, T.Value AS temperature, H.Value AS humidity, T.ts
FROM Temperature T JOIN Humidity H ON T.Room = H.Room
WINDOW 10 seconds;

-- rooms that were warm and damp within a minute: mould
CREATE QUERY mould WITH (sink = 'parquet', path = 'out/mould') AS
SELECT T.Room, T.Value AS temperature, H.Value AS humidity
FROM Temperature T JOIN Humidity H ON T.Room = H.Room
WHERE T.Value > 15 AND H.Value > 60
WINDOW 1 minute;

-- freezing and damp within ten minutes: ice
CREATE QUERY ice WITH (sink = 'parquet', path = 'out/ice') AS
SELECT T.Room, T.Value AS temperature, H.Value AS humidity, T.ts AS frozen_at, H.ts AS damp_at
FROM Temperature T JOIN Humidity H ON T.Room = H.Room
WHERE T.Value < -5 AND H.Value > 95
WINDOW 10 minutes;
