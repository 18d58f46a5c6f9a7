"""Transactions under faults: the clients, the history of their operations, its models and its checker."""
