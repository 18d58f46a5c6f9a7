"""Tests of the console: its data layer, its pages, and its pages in a real browser."""
