"""DSL: streams and tables, and the operators between them; build() writes them into a topology."""
