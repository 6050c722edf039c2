-- NEXMark's query 4, the average closing price per category, in two parts. This inner query computes the closing price of
-- each auction. q4b.sql reads its results.
--
--     python make_auctions.py && penstock run q4.sql --once && penstock run q4b.sql --once
--
-- NEXMark writes both as one, with a subquery in FROM:
--
--     SELECT AVG(Q.final) FROM (SELECT MAX(B.price) AS final, A.category FROM Auction A, Bid B
--                               WHERE A.id = B.auction AND B.ts < A.expires AND A.expires < CURRENT_TIME
--                               GROUP BY A.id, A.category) Q
--     GROUP BY Q.category
--
-- emit = 'final' replaces A.expires < CURRENT_TIME: an auction is answered when its closed row has come. At the end of
-- --once, auctions that are still open are answered with their highest bid so far.

CREATE STREAM Auction (item_id BIGINT, category INT, ts TIMESTAMP, expires TIMESTAMP)
  WITH (format = 'parquet', path = 'data/auction', time = 'ts', unique = 'item_id');
CREATE STREAM Bid (item_id BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/bid', time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

CREATE QUERY closing WITH (sink = 'parquet', path = 'out/closing', emit = 'final') AS
SELECT A.item_id, A.category, A.expires, MAX(B.price) AS price
FROM Auction A [RANGE 2 DAYS], Bid B [NOW]
WHERE A.item_id = B.item_id AND B.ts >= A.ts AND B.ts < A.expires
GROUP BY A.item_id, A.category, A.expires;
