"""The Kafka wire format: messages, headers, record batches, compression, error codes.

It imports no other package of Odradek.
Start at `messages` (the classes), `definitions/` (their format on the wire) and `grammar` (the language of the
definitions).
"""
