CREATE STREAM Temperature (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/temperature', time = 'ts', lateness = '5 seconds', maxFilesPerTrigger = '1');
CREATE STREAM Humidity (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/humidity', time = 'ts', lateness = '5 seconds', maxFilesPerTrigger = '1');

-- every five minutes, the highest values of rooms that were hot and damp in the last ten minutes
CREATE QUERY peaks AS
SELECT T.Room, MAX(T.Value) AS hottest, MAX(H.Value) AS dampest, COUNT(*) AS pairs
FROM Temperature T JOIN Humidity H ON T.Room = H.Room
WHERE T.Value > 25 AND H.Value > 55
GROUP BY T.Room HAVING COUNT(*) > 2
WINDOW 10 minutes EVERY 5 minutes;

-- every minute, the number of rooms in which it froze
CREATE QUERY frozen WITH (sink = 'parquet', path = 'out/frozen') AS
SELECT COUNT(DISTINCT T.Room) AS rooms FROM Temperature T JOIN Humidity H ON T.Room = H.Room
WHERE T.Value < 0
WINDOW 1 minute EVERY 1 minute;

-- each hour of each room, once, when it is complete
CREATE QUERY hourly WITH (emit = 'final') AS
SELECT T.Room, date_trunc('hour', T.ts) AS hour, ROUND(AVG(H.Value), 1) AS humidity, COUNT(*) AS pairs
FROM Temperature T JOIN Humidity H ON T.Room = H.Room
GROUP BY T.Room, date_trunc('hour', T.ts)
WINDOW 10 seconds;

-- the totals of each room so far, updated at each change
CREATE QUERY rooms WITH (emit = 'changes') AS
SELECT T.Room, COUNT(*) AS pairs, MIN(T.Value) AS coldest
FROM Temperature T JOIN Humidity H ON T.Room = H.Room
GROUP BY T.Room
WINDOW 10 seconds;
