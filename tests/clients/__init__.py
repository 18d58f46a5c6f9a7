"""Small programs over clients of other languages, built once: go/ (franz-go, Sarama), node/ (KafkaJS), java/.

Each walks through the features of its library and prints the results, one fact a line, without names or times of its
own. transcripts/ holds what each prints against Apache Kafka 3.9.2; `tests/compatibility/test_clients_*.py` run the
programs against the broker under test and compare. `python -m tests.clients record` writes the transcripts anew.
"""
