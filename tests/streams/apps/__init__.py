"""Applications that tests start as processes, and faults on them."""
