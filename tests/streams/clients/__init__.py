"""Tests of the streams runtime's own clients."""
