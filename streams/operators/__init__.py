"""Operators: the record functions of the DSL's nodes. An operator serves all tasks; `bind` creates the state of one
task.
"""
