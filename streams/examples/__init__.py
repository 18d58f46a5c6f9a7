"""Applications to read and to run, each in one file and by one command (docs/streams.md).

    python -m odradek.streams.examples.word_count --help

They want a broker, Odradek or Apache Kafka: `--bootstrap-servers`, by default that of `make run`. Each makes its
topics, makes up its input unless that is yours to write, says what happens, and ends with ctrl-C or after `--seconds`.

    word_count      Kafka's tutorial, also by windows
    stocks          trades in windows of five seconds, one every second
    clicks          page views joined with who looks (a table) and what they search for (a stream)
    transfer        money between accounts, exactly once
    snapshot        state of one's own in memory, saved in a file together with its offsets
    snapshot_topic  the same, saved in Kafka in one transaction with its offsets
    queries_http    counts over HTTP, from whichever instance has them
    dead_letters    records that cannot be processed go to a topic of their own
"""
