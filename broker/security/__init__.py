"""Security: principals, SASL exchanges, ACLs, tokens and keystores (Kafka: org.apache.kafka.common.security)."""
