-- NEXMark's query 4, the outer part: the average closing price per category, over the results of q4.sql.
--
-- The stream of closing prices is the directory of Parquet files that q4.sql writes. Both can run continuously.
-- An aggregate needs a join, so the prices are joined with the names of the categories. Each category comes once (unique),
-- so no price has to be kept. The average covers all auctions so far and changes with each: emit = 'changes'.
-- `penstock results q4 --state .penstock/q4b` shows the latest value per category.
--
-- Files of results are unordered, so the lateness is long. Changes do not wait for a watermark, so it costs nothing.

CREATE STREAM Category (category INT, name STRING, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/category', time = 'ts', unique = 'category');
CREATE STREAM Closing (item_id BIGINT, category INT, expires TIMESTAMP, price DOUBLE)
  WITH (format = 'parquet', path = 'out/closing', time = 'expires', lateness = '30 days');

CREATE QUERY q4 WITH (sink = 'parquet', path = 'out/q4', emit = 'changes') AS
SELECT C.category, C.name, AVG(P.price) AS price, COUNT(*) AS auctions
FROM Category C [UNBOUNDED], Closing P [NOW]
WHERE C.category = P.category
GROUP BY C.category, C.name;
