"""The data of the console: what `odradek console` and `odradek top` show of a cluster, as plain objects without HTTP.

    with ClusterSampler(lambda: AdminClient([("localhost", 9092)], timeout_s=5.0)) as sampler:
        sampler.refresh()
        print(overview_of(sampler.history))

`sampler` reads the cluster at an interval with requests that every broker since Apache Kafka 2.8 answers. `history`
keeps the latest sample, rates, lags and a timeline of the differences between samples, all of bounded size. The other
modules make pages of them, or ask the cluster about one object.
"""
