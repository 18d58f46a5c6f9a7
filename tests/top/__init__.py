"""`odradek top`."""
