"""What is held and what it costs: status, prices measured, plans compared."""
