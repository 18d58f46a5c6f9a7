"""The commands for clusters: one module for each noun (`odradek topic`, `odradek group`, …).

Each works with Odradek and with Apache Kafka from 2.8 on. `session` has what they share: the options of a connection,
output in four formats, confirmation of changes; `failures` has the exit codes.
"""
