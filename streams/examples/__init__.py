"""Example applications, each in one file with one command (docs/streams.md).

    python -m odradek.streams.examples.word_count --help

They require a broker, Odradek or Apache Kafka: `--bootstrap-servers`, by default that of `make run`. Each creates its
topics, generates its input unless you write it, prints what happens, and ends with ctrl-C or after `--seconds`.

    word_count      Kafka's tutorial, also by windows
    stocks          trades in windows of five seconds, one every second
    clicks          page views joined with user profiles (a table) and searches (a stream)
    transfer        money between accounts, exactly once
    snapshot        custom state in memory, saved in a file together with its offsets
    snapshot_topic  the same, saved in Kafka in one transaction with its offsets
    queries_http    counts over HTTP, from the instance that has them
    dead_letters    records that cannot be processed go to a separate topic
"""
