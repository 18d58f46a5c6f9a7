"""SASL mechanisms: their messages, and the exchanges of both sides without I/O."""
