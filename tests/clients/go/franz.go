package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz-go: topics, every codec, groups with two members, transactions that commit and abort, and its admin client.
func franz(w *walk) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.bootstrap...))
	check("a client", err)
	defer client.Close()
	admin := kadm.NewClient(client)

	franzTopics(ctx, w, admin)
	franzCodecs(ctx, w)
	franzOffsets(ctx, w, admin)
	franzGroup(ctx, w, admin)
	franzTransactions(ctx, w, admin)
	franzEnd(ctx, w, admin)
}

func kafkaError(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	if err == nil {
		return "NONE"
	}
	return err.Error()
}

func franzTopics(ctx context.Context, w *walk, admin *kadm.Client) {
	day := "86400000"
	for _, name := range []string{"codecs", "copy", "moved"} {
		made, err := admin.CreateTopic(ctx, 2, w.replication, map[string]*string{"retention.ms": &day}, w.topic(name))
		check("creating a topic", err)
		w.say("created %s partitions %d as asked %v", made.Topic, made.NumPartitions, made.ReplicationFactor == w.replication)
	}
	_, err := admin.CreateTopic(ctx, 2, w.replication, nil, w.topic("codecs"))
	w.say("created again: %s", kafkaError(err))
	_, err = admin.CreateTopic(ctx, 2, 99, nil, w.topic("wide"))
	w.say("with 99 replicas: %s", kafkaError(err))
	dry, err := admin.ValidateCreateTopics(ctx, 3, w.replication, nil, w.topic("dry"))
	check("validating", err)
	w.say("validated: %s", kafkaError(dry[w.topic("dry")].Err))
	more, err := admin.UpdatePartitions(ctx, 4, w.topic("codecs"))
	check("more partitions", err)
	w.say("four partitions: %s", kafkaError(more[w.topic("codecs")].Err))
	fewer, err := admin.UpdatePartitions(ctx, 3, w.topic("codecs"))
	check("fewer partitions", err)
	w.say("three partitions: %s", kafkaError(fewer[w.topic("codecs")].Err))
	w.settle(map[string]int{"codecs": 4, "copy": 2, "moved": 2})

	size := "1000000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "segment.bytes", Value: &size},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")},
		{Op: kadm.DeleteConfig, Name: "retention.ms"},
	}, w.topic("moved"))
	check("altering", err)
	w.say("altered: %s", kafkaError(altered[0].Err))
	altered, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "segment.bytes", Value: kadm.StringPtr("few")},
	}, w.topic("moved"))
	check("altering", err)
	w.say("altered to nonsense: %s", kafkaError(altered[0].Err))
	configs, err := admin.DescribeTopicConfigs(ctx, w.topic("moved"))
	check("describing configs", err)
	sort.Slice(configs[0].Configs, func(i, j int) bool { return configs[0].Configs[i].Key < configs[0].Configs[j].Key })
	for _, config := range configs[0].Configs {
		switch config.Key {
		case "segment.bytes", "cleanup.policy", "retention.ms":
			w.say("config %s=%s from %s, %d synonyms", config.Key, *config.Value, config.Source, len(config.Synonyms))
		}
	}

	listed, err := admin.ListTopics(ctx, w.topic("codecs"), w.topic("copy"), w.topic("missing"))
	check("listing topics", err)
	for _, topic := range listed.Sorted() {
		w.say("%s has %d partitions: %s", topic.Topic, len(topic.Partitions), kafkaError(topic.Err))
	}
}

// A digest of the records read, in the order of each partition, with the times relative to the walk's.
type digest struct {
	w     *walk
	count map[int32]int
	sums  map[int32]uint32
}

func newDigest(w *walk) *digest { return &digest{w, map[int32]int{}, map[int32]uint32{}} }

func (d *digest) add(partition int32, offset int64, at time.Time, key, value []byte, headers []string) {
	line := fmt.Sprintf("%d %s %s %s %s", offset, at.Sub(d.w.begun), key, value, strings.Join(headers, ","))
	d.sums[partition] = crc32.Update(d.sums[partition], crc32.IEEETable, []byte(line))
	d.count[partition]++
}

func (d *digest) total() int {
	total := 0
	for _, count := range d.count {
		total += count
	}
	return total
}

func (d *digest) say(what string) {
	var partitions []int
	for partition := range d.count {
		partitions = append(partitions, int(partition))
	}
	sort.Ints(partitions)
	for _, partition := range partitions {
		p := int32(partition)
		d.w.say("%s %d: %d records, %08x", what, p, d.count[p], d.sums[p])
	}
}

func franzHeaders(record *kgo.Record) []string {
	var headers []string
	for _, header := range record.Headers {
		headers = append(headers, header.Key+"="+string(header.Value))
	}
	return headers
}

func franzCodecs(ctx context.Context, w *walk) {
	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()},
		{"gzip", kgo.GzipCompression()},
		{"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()},
		{"zstd", kgo.ZstdCompression()},
	}
	number := 0
	for _, codec := range codecs {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(w.bootstrap...),
			kgo.ProducerBatchCompression(codec.codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		check("a producer", err)
		var records []*kgo.Record
		for i := range perCodec {
			records = append(records, &kgo.Record{
				Topic:     w.topic("codecs"),
				Partition: int32(i % 4),
				Timestamp: w.time(number),
				Key:       fmt.Appendf(nil, "key %d", number),
				Value:     []byte(strings.Repeat(codec.name+" ", 50)),
				Headers:   []kgo.RecordHeader{{Key: "codec", Value: []byte(codec.name)}, {Key: "nothing"}},
			})
			number++
		}
		results := client.ProduceSync(ctx, records...)
		check("producing with "+codec.name, results.FirstErr())
		w.say("%s: last offset %d", codec.name, results[perCodec-1].Record.Offset)
		client.Close()
	}

	offsets := map[int32]kgo.Offset{}
	for partition := range int32(4) {
		offsets[partition] = kgo.NewOffset().AtStart()
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(w.bootstrap...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic("codecs"): offsets}),
	)
	check("a consumer", err)
	defer consumer.Close()
	read := newDigest(w)
	for read.total() < number {
		fetches := consumer.PollFetches(ctx)
		check("fetching", fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			read.add(r.Partition, r.Offset, r.Timestamp, r.Key, r.Value, franzHeaders(r))
		})
	}
	read.say("codecs")
}

func franzSayOffsets(w *walk, what string, listed kadm.ListedOffsets) {
	for _, offset := range listed.Offsets().Sorted() {
		w.say("%s of %s %d: %d", what, offset.Topic, offset.Partition, offset.At)
	}
}

func franzOffsets(ctx context.Context, w *walk, admin *kadm.Client) {
	topic := w.topic("codecs")
	deleted, err := admin.DeleteRecords(ctx, kadm.Offsets{topic: {1: {Topic: topic, Partition: 1, At: 3}}})
	check("deleting records", err)
	for _, one := range deleted.Sorted() {
		w.say("deleted %s %d up to %d: %s", one.Topic, one.Partition, one.LowWatermark, kafkaError(one.Err))
	}
	deleted, err = admin.DeleteRecords(ctx, kadm.Offsets{topic: {1: {Topic: topic, Partition: 1, At: 3000}}})
	check("deleting records", err)
	for _, one := range deleted.Sorted() {
		w.say("deleted past the end: %s", kafkaError(one.Err))
	}
	asks := []struct {
		what string
		ask  func() (kadm.ListedOffsets, error)
	}{
		{"start", func() (kadm.ListedOffsets, error) { return admin.ListStartOffsets(ctx, topic) }},
		{"end", func() (kadm.ListedOffsets, error) { return admin.ListEndOffsets(ctx, topic) }},
		{"committed", func() (kadm.ListedOffsets, error) { return admin.ListCommittedOffsets(ctx, topic) }},
		{"newest", func() (kadm.ListedOffsets, error) { return admin.ListMaxTimestampOffsets(ctx, topic) }},
		{"after 50 s", func() (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, w.time(50).UnixMilli(), topic)
		}},
	}
	for _, one := range asks {
		listed, err := one.ask()
		check(one.what, err)
		check(one.what, listed.Error())
		franzSayOffsets(w, one.what, listed)
	}
	logs, err := admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{topic: {0: {}}})
	check("log directories", err)
	replicas := 0
	logs.Each(func(directory kadm.DescribedLogDir) {
		directory.Topics.Each(func(log kadm.DescribedLogDirPartition) {
			if log.Size > 0 && !log.IsFuture {
				replicas++
			}
		})
	})
	w.say("every replica of partition 0 has a log: %v", replicas == int(w.replication))
}

// franzMember is a member of a group that prints its partitions, until it is stopped.
type franzMember struct {
	client *kgo.Client
	done   chan struct{}
}

type holdings struct {
	sync.Mutex
	held    map[int]map[int32]bool
	changed chan struct{}
	read    *digest
}

func (h *holdings) note(member int, partitions []int32, have bool) {
	h.Lock()
	for _, partition := range partitions {
		if have {
			h.held[member][partition] = true
		} else {
			delete(h.held[member], partition)
		}
	}
	h.Unlock()
	h.wake()
}

func (h *holdings) wake() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// await returns when holds is true; it is evaluated after every change.
func (h *holdings) await(what string, holds func() bool) {
	limit := time.After(patience)
	for {
		h.Lock()
		done := holds()
		h.Unlock()
		if done {
			return
		}
		select {
		case <-h.changed:
		case <-limit:
			check(what, errors.New("not in time"))
		}
	}
}

func (h *holdings) sizes() string {
	var sizes []string
	for _, partitions := range h.held {
		sizes = append(sizes, fmt.Sprint(len(partitions)))
	}
	sort.Strings(sizes)
	return strings.Join(sizes, "+")
}

func franzJoin(ctx context.Context, w *walk, h *holdings, member int, options ...kgo.Opt) *franzMember {
	topic := w.topic("codecs")
	h.Lock()
	h.held[member] = map[int32]bool{}
	h.Unlock()
	all := append([]kgo.Opt{
		kgo.SeedBrokers(w.bootstrap...),
		kgo.ConsumerGroup(w.topic("group")),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			h.note(member, got[topic], true)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			h.note(member, lost[topic], false)
		}),
	}, options...)
	client, err := kgo.NewClient(all...)
	check("a member", err)
	joined := &franzMember{client, make(chan struct{})}
	go func() {
		defer close(joined.done)
		for {
			fetches := client.PollFetches(ctx)
			if fetches.IsClientClosed() {
				return
			}
			h.Lock()
			fetches.EachRecord(func(r *kgo.Record) {
				h.read.add(r.Partition, r.Offset, r.Timestamp, r.Key, r.Value, franzHeaders(r))
			})
			h.Unlock()
			h.wake()
		}
	}()
	return joined
}

func (m *franzMember) leave() {
	m.client.Close()
	<-m.done
}

// franzTwoMembers lets one member read everything and commit, a second one join, and both leave.
func franzTwoMembers(ctx context.Context, w *walk, describe func(string), options ...kgo.Opt) {
	h := &holdings{held: map[int]map[int32]bool{}, changed: make(chan struct{}, 1), read: newDigest(w)}
	first := franzJoin(ctx, w, h, 1, options...)
	// Three records of partition 1 are deleted.
	h.await("reading by a group", func() bool { return h.read.total() == 5*perCodec-3 })
	h.read.say("by group")
	check("committing", first.client.CommitUncommittedOffsets(ctx))
	second := franzJoin(ctx, w, h, 2, options...)
	h.await("sharing", func() bool { return h.sizes() == "2+2" })
	w.say("two members hold %s", h.sizes())
	describe("with two members")
	second.leave()
	h.await("inheriting", func() bool { return len(h.held[1]) == 4 })
	w.say("one member holds all; read in all %d", h.read.total())
	first.leave()
	describe("when all have left")
}

func franzGroup(ctx context.Context, w *walk, admin *kadm.Client) {
	group := w.topic("group")
	franzTwoMembers(ctx, w, func(when string) {
		described, err := admin.DescribeGroups(ctx, group)
		check("describing a group", err)
		one := described[group]
		w.say("%s: %s %s %q, %d members", when, one.State, one.ProtocolType, one.Protocol, len(one.Members))
	})

	committed, err := admin.FetchOffsets(ctx, group)
	check("fetching offsets", err)
	for _, offset := range committed.Offsets().Sorted() {
		// The metadata is the name that the member got from the broker.
		w.say("committed %s %d: %d, said by whom %v", offset.Topic, offset.Partition, offset.At, offset.Metadata != "")
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: w.topic("codecs"), Partition: 2, At: 7, LeaderEpoch: -1, Metadata: "by hand"})
	check("committing by hand", admin.CommitAllOffsets(ctx, group, offsets))
	lag, err := admin.Lag(ctx, group)
	check("lag", err)
	w.say("lag %d", lag[group].Lag.Total())
	removed, err := admin.DeleteOffsets(ctx, group, kadm.TopicsSet{w.topic("codecs"): {0: {}}})
	check("deleting offsets", err)
	w.say("deleted an offset: %s", kafkaError(removed.Error()))
	listed, err := admin.ListGroups(ctx, "Empty")
	check("listing groups", err)
	w.say("listed as %s %s", listed[group].State, listed[group].ProtocolType)
	gone, err := admin.DeleteGroups(ctx, group, w.topic("no-such-group"))
	check("deleting groups", err)
	for _, one := range gone.Sorted() {
		w.say("deleted %s: %s", one.Group, kafkaError(one.Err))
	}
}
