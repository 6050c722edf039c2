-- NEXMark's query 4, its outer query: the average over the closing prices that q4.sql has written, category by category.
--
-- The stream of closing prices is the directory of Parquet files that q4.sql writes to; left running, both go on together.
-- An aggregate is over pairs, so the prices are joined with a small stream of the categories' names, all of which were
-- there before the first auction; each is there once (unique), so that no price has to be kept. NEXMark's average is
-- one over all auctions so far and is told again when it changes: emit = 'changes'. `penstock results q4 --state
-- .penstock/q4b` shows the latest of each category.
--
-- Files of results are in no set order, and an auction may be closed long before or after those in the same file. Changes
-- wait for no watermark, so a long lateness costs nothing.

CREATE STREAM Category (category INT, name STRING, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/category', time = 'ts', unique = 'category');
CREATE STREAM Closing (item_id BIGINT, category INT, expires TIMESTAMP, price DOUBLE)
  WITH (format = 'parquet', path = 'out/closing', time = 'expires', lateness = '30 days');

CREATE QUERY q4 WITH (sink = 'parquet', path = 'out/q4', emit = 'changes') AS
SELECT C.category, C.name, AVG(P.price) AS price, COUNT(*) AS auctions
FROM Category C [UNBOUNDED], Closing P [NOW]
WHERE C.category = P.category
GROUP BY C.category, C.name;
