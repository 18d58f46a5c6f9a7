"""The DSL: streams and tables, and the operators between them, written into a topology by build()."""
