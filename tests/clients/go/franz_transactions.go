package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Copies the records of a group in transactions: one is aborted and read again, the next is committed with its offsets.
func franzTransactions(ctx context.Context, w *walk, admin *kadm.Client) {
	id, group := w.topic("transactional"), w.topic("copiers")
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(w.bootstrap...),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(patience),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(w.topic("codecs")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	check("a session", err)
	defer session.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		check("beginning", session.Begin())
		copied := 0
		for copied < 5*perCodec-3 {
			fetches := session.PollFetches(ctx)
			check("fetching", fetches.Err())
			fetches.EachRecord(func(r *kgo.Record) {
				session.Produce(ctx, &kgo.Record{
					Topic: w.topic("copy"), Partition: r.Partition % 2, Key: r.Key, Value: r.Key, Timestamp: r.Timestamp,
				}, func(_ *kgo.Record, err error) { check("producing", err) })
				copied++
			})
		}
		check("flushing", session.Client().Flush(ctx))
		franzSayOpen(ctx, w, admin, id)
		committed, err := session.End(ctx, end)
		check("ending", err)
		w.say("copied %d, committed %v", copied, committed)
		franzAwaitMarkers(ctx, admin, id)
	}
	committed, err := admin.FetchOffsets(ctx, group)
	check("fetching offsets", err)
	for _, offset := range committed.Offsets().Sorted() {
		w.say("committed in the transaction %s %d: %d", offset.Topic, offset.Partition, offset.At)
	}
	for _, level := range []kgo.IsolationLevel{kgo.ReadCommitted(), kgo.ReadUncommitted()} {
		franzReadCopy(ctx, w, admin, level)
	}
	franzFenced(ctx, w, id)
}

func franzSayOpen(ctx context.Context, w *walk, admin *kadm.Client, id string) {
	described, err := admin.DescribeTransactions(ctx, id)
	check("describing a transaction", err)
	one := described[id]
	w.say("transaction %s with %d topics, timeout %d ms", one.State, len(one.Topics), one.TimeoutMillis)
	listed, err := admin.ListTransactions(ctx, []int64{one.ProducerID}, []string{"Ongoing"})
	check("listing transactions", err)
	w.say("listed as %s", listed[id].State)
	producers, err := admin.DescribeProducers(ctx, kadm.TopicsSet{w.topic("copy"): {0: {}}})
	check("describing producers", err)
	for _, one := range producers.SortedProducers() {
		w.say("open in %s %d from %d", one.Topic, one.Partition, one.CurrentTxnStartOffset)
	}
}

// The coordinator answers when the end is decided; it writes the markers to the partitions afterwards.
func franzAwaitMarkers(ctx context.Context, admin *kadm.Client, id string) {
	for {
		described, err := admin.DescribeTransactions(ctx, id)
		check("describing a transaction", err)
		if described[id].State == "CompleteCommit" || described[id].State == "CompleteAbort" {
			return
		}
	}
}

// A transaction that is over is read whole: the last stable offset has come to the end.
func franzReadCopy(ctx context.Context, w *walk, admin *kadm.Client, level kgo.IsolationLevel) {
	ends, err := admin.ListCommittedOffsets(ctx, w.topic("copy"))
	check("the end of the copy", err)
	left := map[int32]int64{}
	offsets := map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		left[end.Partition] = end.Offset
		offsets[end.Partition] = kgo.NewOffset().AtStart()
	})
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(w.bootstrap...),
		kgo.FetchIsolationLevel(level),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic("copy"): offsets}),
		kgo.KeepControlRecords(), // the last record in a partition is a marker
	)
	check("a consumer", err)
	defer consumer.Close()
	keys, read := newDigest(w), 0
	for len(left) > 0 {
		fetches := consumer.PollFetches(ctx)
		check("fetching", fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				// The order of the source's partitions differs from run to run.
				keys.count[r.Partition]++
				read++
			}
			if r.Offset == left[r.Partition]-1 {
				delete(left, r.Partition)
			}
		})
	}
	w.say("read of the copy: %d, ends %s", read, franzEnds(ends))
}

func franzEnds(ends kadm.ListedOffsets) string {
	text := ""
	for _, end := range ends.Offsets().Sorted() {
		text += fmt.Sprintf("%d ", end.At)
	}
	return text
}

// The next producer of a transactional id fences the one before it.
func franzFenced(ctx context.Context, w *walk, id string) {
	begin := func() *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(w.bootstrap...), kgo.TransactionalID(id+"-fenced"))
		check("a producer", err)
		check("beginning", client.BeginTransaction())
		return client
	}
	record := func() *kgo.Record { return &kgo.Record{Topic: w.topic("moved"), Key: []byte("k"), Value: []byte("v")} }
	first := begin()
	defer first.Close()
	check("the first", first.ProduceSync(ctx, record()).FirstErr())
	second := begin()
	defer second.Close()
	check("the second", second.ProduceSync(ctx, record()).FirstErr())
	err := first.ProduceSync(ctx, record()).FirstErr()
	w.say("the fenced producer is told %s", kafkaError(err))
	require("the fenced producer fails", err != nil)
	check("ending the second", second.EndTransaction(ctx, kgo.TryCommit))
}

func franzEnd(ctx context.Context, w *walk, admin *kadm.Client) {
	metadata, err := admin.BrokerMetadata(ctx)
	check("metadata", err)
	w.say("a controller among the brokers: %v", metadata.Brokers.NodeIDs()[0] <= metadata.Controller)
	elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{w.topic("codecs"): {0: {}}})
	check("electing", err)
	w.say("elected: %s", kafkaError(elected[w.topic("codecs")][0].Err))
	deleted, err := admin.DeleteTopics(ctx, w.topic("codecs"), w.topic("copy"), w.topic("moved"), w.topic("missing"))
	check("deleting topics", err)
	for _, name := range []string{"codecs", "copy", "missing", "moved"} {
		w.say("deleted %s: %s", name, kafkaError(deleted[w.topic(name)].Err))
	}
}

// The consumer protocol of KIP-848: the broker assigns.
func franzConsumerProtocol(w *walk) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.bootstrap...))
	check("a client", err)
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(ctx, 4, w.replication, nil, w.topic("codecs"))
	check("creating a topic", err)
	w.settle(map[string]int{"codecs": 4})
	franzCodecs(ctx, w)
	_, err = admin.DeleteRecords(ctx, kadm.Offsets{w.topic("codecs"): {1: {Topic: w.topic("codecs"), Partition: 1, At: 3}}})
	check("deleting records", err)
	group := w.topic("group")
	franzTwoMembers(ctx, w, func(when string) {
		described, err := admin.DescribeConsumerGroups(ctx, group)
		check("describing a group", err)
		one := described[group]
		if one.Err != nil {
			check("describing a group", errors.New(kafkaError(one.Err)))
		}
		w.say("%s: %s %q, %d members", when, one.State, one.AssignorName, len(one.Members))
	}, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(session))
}
