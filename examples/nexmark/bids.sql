-- The number of bids for each auction within 12 hours of its opening, if it has any: the query of Figure 1 of "Joining
-- punctuated streams with sliding windows" (docs/papers/paper3.md), as it stands there.
--
--     python make_auctions.py && penstock run bids.sql --once
--
-- What the two streams promise, and what comes of it:
--
--   unique = 'item_id'        An item is auctioned once, so no bid has to be kept for auctions to come.
--   kind = 'closed'           Such a row is no bid: it says that no more bids on its item_id come after it. The auction is
--                             let go, and its number of bids is known then, not at the end of its 12 hours.
--   [RANGE 12 HOURS]          Of an auction that is open for longer, the number is known after 12 hours; later bids on
--                             it are not stored.

CREATE STREAM Auction (item_id BIGINT, seller BIGINT, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/auction', time = 'ts', unique = 'item_id');
CREATE STREAM Bid (item_id BIGINT, bidder BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/bid', time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

CREATE QUERY bids WITH (sink = 'parquet', path = 'out/bids', emit = 'final') AS
SELECT A.item_id, COUNT(*) AS bids FROM Auction A [RANGE 12 HOURS], Bid B [NOW]
WHERE A.item_id = B.item_id GROUP BY A.item_id;
