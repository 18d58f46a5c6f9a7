"""Membership in a consumer group with an assignment of our own: who runs which task."""
