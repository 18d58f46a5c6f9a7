"""What bytes mean: messages, headers, record batches, compression, error codes. Knows nothing else of Odradek.

Start at `messages` (the classes), `definitions/` (what they look like on the wire) and `grammar` (how to read those).
"""
