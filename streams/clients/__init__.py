"""Clients of Odradek's own for the records of an application: a consumer and a producer over `odradek.protocol`."""
