"""What the nodes of the DSL do with a record. An operator serves all tasks; `bind` makes what one of them needs."""
