"""Applications that tests start as processes, and what befalls them."""
