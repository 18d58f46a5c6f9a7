"""A client for administration, over Odradek's own protocol code (Kafka: KafkaAdminClient).

    with AdminClient([("localhost", 9092)]) as client:
        topics.create_topics(client, [topics.CreatableTopic("orders", partitions=6)])

It is synchronous and uses plain sockets, so that a command starts without an event loop, and serves any broker from
Apache Kafka 2.8 to 4.3. Each module has the operations of one kind as functions; the first parameter of all is the
client, and a result for several items has for each its value or its KafkaError.
"""
