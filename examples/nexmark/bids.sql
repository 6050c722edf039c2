-- The number of bids per auction within 12 hours of its opening: Figure 1 of "Joining punctuated streams with sliding
-- windows" (docs/papers/paper3.md), unchanged.
--
--     python make_auctions.py && penstock run bids.sql --once
--
-- The promises of the two streams:
--
--   unique = 'item_id'        An item is auctioned once, so bids are not kept for later auctions.
--   kind = 'closed'           Such a row is no bid. It promises that no more bids on its item_id come. The auction is answered
--                             and deleted then, not after 12 hours.
--   [RANGE 12 HOURS]          An auction that is open longer is answered after 12 hours; later bids are not stored.

CREATE STREAM Auction (item_id BIGINT, seller BIGINT, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/auction', time = 'ts', unique = 'item_id');
CREATE STREAM Bid (item_id BIGINT, bidder BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/bid', time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

CREATE QUERY bids WITH (sink = 'parquet', path = 'out/bids', emit = 'final') AS
SELECT A.item_id, COUNT(*) AS bids FROM Auction A [RANGE 12 HOURS], Bid B [NOW]
WHERE A.item_id = B.item_id GROUP BY A.item_id;
