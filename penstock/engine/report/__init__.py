"""What the engine says of itself: status, costs, late rows."""
