"""From one plan to the next: what changes, what would be lost, what new queries start with, and the commit."""
