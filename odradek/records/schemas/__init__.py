"""Records with schemas in a schema registry: Avro, JSON Schema and Protobuf in Confluent's wire format."""
