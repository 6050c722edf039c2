-- NEXMark's query 9, winning bids: the highest bid on each auction, of those between its opening and its expiry.
--
--     python make_auctions.py && penstock run q9.sql --once
--
-- NEXMark asks for the winning bid whole: of all bids with B.ts BETWEEN A.ts AND A.expires, the first by price. Here it is
-- the price of that bid, by MAX, so that one entry is kept of an auction and not its bids; whoever bid it is found by a
-- join of the result with Bid on item_id and price. NEXMark has no window. Here one says how long an auction may be open:
-- none is for two days or longer, so nothing is left out.
--
-- An auction is answered once (emit = 'final'): when its closed row has come, or when its two days are over.

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
