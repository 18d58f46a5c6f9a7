"""Tests of broker/security, most of them beside the classes of Apache Kafka 3.9.2 in the test process."""
