"""Membership in a consumer group with a custom assignment: which thread runs which task."""
