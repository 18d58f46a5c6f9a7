"""The oracle of the streams runtime: Apache Kafka Streams 3.9.2 itself, in this process, through JPype.

`java.py` starts the JVM and finds classes, `values.py` carries values and functions across, `java_driver.py` is Java's
TopologyTestDriver, `java_dsl.py` Java's DSL in the names of odradek.streams, and `implementations.py` runs one topology
on both. `java_assignor.py` runs Java's task assignors; `FailingAssignor.java` is one that a test compiles.
"""
