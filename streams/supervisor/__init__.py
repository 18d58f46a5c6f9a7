"""Supervisor: runs one stream application in several processes (`odradek streams run`).

The supervisor process starts the workers, restarts those that fail, merges their logs and metrics, and restarts them
one by one on request. It imports neither a client nor RocksDB: a worker process imports `worker.py`, and with it the
runtime and the modules of the user. Kafka Streams leaves all of this to the platform that runs its processes.
"""
