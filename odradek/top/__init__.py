"""`odradek top`: the views of the console on a terminal, with Textual. It only reads.

`panes` makes rows of the console's data, `app` is the program, `group_screen` one group.
"""
