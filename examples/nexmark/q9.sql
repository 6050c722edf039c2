-- NEXMark's query 9, winning bids: the highest bid on each auction between its opening and its expiry.
--
--     python make_auctions.py && penstock run q9.sql --once
--
-- NEXMark returns the whole winning row. Here MAX returns its price, so one entry per auction is kept instead of its bids;
-- MAX_BY(B.bidder, B.price) would return the bidder. NEXMark has no window. Here one limits how long an auction may be open;
-- all auctions are shorter than two days, so none is lost.
--
-- An auction is answered once (emit = 'final'): when its closed row has come, or after two days.

CREATE STREAM Auction (item_id BIGINT, seller BIGINT, reserve DOUBLE, ts TIMESTAMP, expires TIMESTAMP)
  WITH (format = 'parquet', path = 'data/auction', time = 'ts', unique = 'item_id');
CREATE STREAM Bid (item_id BIGINT, bidder BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/bid', time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

CREATE QUERY q9 WITH (sink = 'parquet', path = 'out/q9', emit = 'final') AS
SELECT A.item_id, A.seller, MAX(B.price) AS price, MAX(B.price) >= MAX(A.reserve) AS sold,
       COUNT(*) AS bids, COUNT(DISTINCT B.bidder) AS bidders
FROM Auction A [RANGE 2 DAYS], Bid B [NOW]
WHERE A.item_id = B.item_id AND B.ts BETWEEN A.ts AND A.expires
GROUP BY A.item_id, A.seller;
