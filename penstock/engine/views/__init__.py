"""What the plan and the ledger say, read and never changed: the plan that stands, who needs rows, what waits, rates."""
