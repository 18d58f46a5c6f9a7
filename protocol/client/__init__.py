"""Blocking connections of a client to brokers: versions, TLS, SASL (Kafka: NetworkClient, SaslClientAuthenticator)."""
