"""Records on the command line: formats, inputs, filters and generators of `odradek produce` and `odradek consume`."""
