package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Sarama uses the protocol of the configured version: the same walk with the features of that version.
func saramaWalk(version string, w *walk) {
	parsed, err := sarama.ParseKafkaVersion(version)
	check("the version", err)
	s := &saramaClient{walk: w, version: parsed}
	admin, err := sarama.NewClusterAdmin(w.bootstrap, s.config())
	check("an admin client", err)
	defer admin.Close()
	s.topics(admin)
	s.codecs()
	s.offsets(admin)
	s.group(admin)
	if s.since(sarama.V0_11_0_0) {
		s.transactions()
	}
	s.end(admin)
}

type saramaClient struct {
	*walk
	version sarama.KafkaVersion
}

func (s *saramaClient) since(version sarama.KafkaVersion) bool { return s.version.IsAtLeast(version) }

func (s *saramaClient) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = s.version
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = session
	config.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	config.Metadata.Retry.Backoff = 50 * time.Millisecond
	s.bePatient(config)
	return config
}

// Sarama gives up after three tries where other clients use a timeout: this makes it wait for a leader, a coordinator
// or a decision as long as they would.
func (s *saramaClient) bePatient(config *sarama.Config) {
	config.Admin.Timeout = patience
	config.Net.ReadTimeout = patience
	config.Metadata.Retry.Max = int(patience / config.Metadata.Retry.Backoff)
	config.Producer.Timeout = patience
	config.Producer.Retry.Max = int(patience / config.Producer.Retry.Backoff)
	config.Producer.Transaction.Retry.Max = int(patience / config.Producer.Transaction.Retry.Backoff)
	config.Consumer.Group.Rebalance.Retry.Max = int(patience / config.Consumer.Group.Rebalance.Retry.Backoff)
}

func saramaError(err error) string {
	if err == nil {
		return "NONE"
	}
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Sprintf("%d", int16(code))
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return fmt.Sprintf("%d", int16(topic.Err))
	}
	var partition *sarama.TopicPartitionError
	if errors.As(err, &partition) {
		return fmt.Sprintf("%d", int16(partition.Err))
	}
	return err.Error()
}

func (s *saramaClient) topics(admin sarama.ClusterAdmin) {
	day := "86400000"
	for _, name := range []string{"codecs", "copy"} {
		detail := &sarama.TopicDetail{
			NumPartitions: 2, ReplicationFactor: s.replication, ConfigEntries: map[string]*string{"retention.ms": &day},
		}
		check("creating a topic", admin.CreateTopic(s.topic(name), detail, false))
	}
	again := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: s.replication}
	s.say("created again: %s", saramaError(admin.CreateTopic(s.topic("codecs"), again, false)))
	check("validating", admin.CreateTopic(s.topic("dry"), again, true))
	if s.since(sarama.V1_0_0_0) {
		check("more partitions", admin.CreatePartitions(s.topic("codecs"), 4, nil, false))
		s.say("three partitions: %s", saramaError(admin.CreatePartitions(s.topic("codecs"), 3, nil, false)))
	}
	s.settle(map[string]int{"codecs": s.partitions(), "copy": 2})
	if s.since(sarama.V0_11_0_0) {
		s.configs(admin)
	}
	names := []string{s.topic("codecs"), s.topic("copy")}
	if s.since(sarama.V0_11_0_0) {
		names = append(names, s.topic("missing")) // before, a request created it
	}
	described, err := admin.DescribeTopics(names)
	check("describing topics", err)
	sort.Slice(described, func(i, j int) bool { return described[i].Name < described[j].Name })
	for _, topic := range described {
		s.say("%s has %d partitions: %s", topic.Name, len(topic.Partitions), saramaError(sarama.KError(topic.Err)))
	}
}

func (s *saramaClient) configs(admin sarama.ClusterAdmin) {
	size := "1000000"
	if s.since(sarama.V2_3_0_0) {
		check("altering", admin.IncrementalAlterConfig(sarama.TopicResource, s.topic("copy"),
			map[string]sarama.IncrementalAlterConfigsEntry{
				"segment.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &size},
			}, false))
	} else {
		entries := map[string]*string{"segment.bytes": &size}
		check("altering", admin.AlterConfig(sarama.TopicResource, s.topic("copy"), entries, false))
	}
	configs, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: s.topic("copy"), ConfigNames: []string{"segment.bytes", "retention.ms"},
	})
	check("describing", err)
	sort.Slice(configs, func(i, j int) bool { return configs[i].Name < configs[j].Name })
	for _, config := range configs {
		s.say("config %s=%s default %v from %s", config.Name, config.Value, config.Default, config.Source)
	}
}

func (s *saramaClient) partitions() int {
	if s.since(sarama.V1_0_0_0) {
		return 4
	}
	return 2
}

func (s *saramaClient) codecNames() []sarama.CompressionCodec {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
	}
	if s.since(sarama.V2_1_0_0) {
		codecs = append(codecs, sarama.CompressionZSTD)
	}
	return codecs
}

func (s *saramaClient) total() int { return len(s.codecNames()) * perCodec }

func (s *saramaClient) codecs() {
	number := 0
	for _, codec := range s.codecNames() {
		config := s.config()
		config.Producer.Compression = codec
		if s.since(sarama.V0_11_0_0) {
			config.Producer.Idempotent = true
			config.Net.MaxOpenRequests = 1
		}
		producer, err := sarama.NewSyncProducer(s.bootstrap, config)
		check("a producer", err)
		var messages []*sarama.ProducerMessage
		for i := range perCodec {
			message := &sarama.ProducerMessage{
				Topic:     s.topic("codecs"),
				Partition: int32(i % s.partitions()),
				Timestamp: s.time(number),
				Key:       sarama.StringEncoder(fmt.Sprintf("key %d", number)),
				Value:     sarama.StringEncoder(strings.Repeat(codec.String()+" ", 50)),
			}
			if s.since(sarama.V0_11_0_0) {
				message.Headers = []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(codec.String())}}
			}
			messages = append(messages, message)
			number++
		}
		check("producing with "+codec.String(), producer.SendMessages(messages))
		s.say("%s: last offset %d", codec, messages[perCodec-1].Offset)
		check("closing", producer.Close())
	}
	s.readCodecs()
}

func saramaHeaders(message *sarama.ConsumerMessage) []string {
	var headers []string
	for _, header := range message.Headers {
		headers = append(headers, string(header.Key)+"="+string(header.Value))
	}
	return headers
}

func (s *saramaClient) readCodecs() {
	consumer, err := sarama.NewConsumer(s.bootstrap, s.config())
	check("a consumer", err)
	defer consumer.Close()
	read := newDigest(s.walk)
	for partition := range s.partitions() {
		one, err := consumer.ConsumePartition(s.topic("codecs"), int32(partition), sarama.OffsetOldest)
		check("consuming", err)
		for range s.total() / s.partitions() {
			select {
			case m := <-one.Messages():
				read.add(m.Partition, m.Offset, m.Timestamp, m.Key, m.Value, saramaHeaders(m))
			case <-time.After(patience):
				check("consuming", errors.New("not in time"))
			}
		}
		s.say("high watermark of %d: %d", partition, one.HighWaterMarkOffset())
		check("closing", one.Close())
	}
	read.say("codecs")
}

func (s *saramaClient) offsets(admin sarama.ClusterAdmin) {
	client, err := sarama.NewClient(s.bootstrap, s.config())
	check("a client", err)
	defer client.Close()
	times := []int64{sarama.OffsetOldest, sarama.OffsetNewest, s.time(30).UnixMilli(), s.time(9999).UnixMilli()}
	if s.since(sarama.V0_11_0_0) {
		check("deleting records", admin.DeleteRecords(s.topic("codecs"), map[int32]int64{1: 3}))
		err := admin.DeleteRecords(s.topic("codecs"), map[int32]int64{1: 3000})
		s.say("deleting records past the end fails: %v", err != nil)
	}
	for partition := range s.partitions() {
		line := ""
		for _, at := range times {
			offset, err := client.GetOffset(s.topic("codecs"), int32(partition), at)
			line += fmt.Sprintf(" %d (%s)", offset, saramaError(err))
		}
		s.say("offsets of %d:%s", partition, line)
	}
}

// saramaGroup is the state of both members of a group: they print their partitions, read, and mark.
type saramaGroup struct {
	sync.Mutex
	held    map[string]int
	read    *digest
	changed chan struct{}
}

type saramaMember struct {
	name  string
	group *saramaGroup
}

func (m saramaMember) note(held int) {
	m.group.Lock()
	m.group.held[m.name] = held
	m.group.Unlock()
	m.wake()
}

func (m saramaMember) wake() {
	select {
	case m.group.changed <- struct{}{}:
	default:
	}
}

func (m saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	held := 0
	for _, partitions := range session.Claims() {
		held += len(partitions)
	}
	m.note(held)
	return nil
}

func (m saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	m.note(0)
	return nil
}

func (m saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			m.group.Lock()
			m.group.read.add(message.Partition, message.Offset, message.Timestamp, message.Key, message.Value,
				saramaHeaders(message))
			m.group.Unlock()
			session.MarkMessage(message, "marked")
			m.wake()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (g *saramaGroup) await(what string, holds func() bool) {
	limit := time.After(patience)
	for {
		g.Lock()
		done := holds()
		g.Unlock()
		if done {
			return
		}
		select {
		case <-g.changed:
		case <-limit:
			check(what, errors.New("not in time"))
		}
	}
}

// join starts a member and returns a function with which it leaves.
func (s *saramaClient) join(name string, group *saramaGroup) func() {
	member, err := sarama.NewConsumerGroup(s.bootstrap, s.topic("group"), s.config())
	check("a member", err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := member.Consume(ctx, []string{s.topic("codecs")}, saramaMember{name, group})
			if err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				check("consuming by a group", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
		check("leaving", member.Close())
	}
}

func (s *saramaClient) group(admin sarama.ClusterAdmin) {
	group := &saramaGroup{held: map[string]int{}, read: newDigest(s.walk), changed: make(chan struct{}, 1)}
	there := s.total()
	if s.since(sarama.V0_11_0_0) {
		there -= 3
	}
	leaveFirst := s.join("first", group)
	group.await("reading by a group", func() bool { return group.read.total() == there })
	group.read.say("by group")
	leaveSecond := s.join("second", group)
	half := s.partitions() / 2
	group.await("sharing", func() bool { return group.held["first"] == half && group.held["second"] == half })
	s.describeGroup(admin, "with two members")
	leaveSecond()
	group.await("inheriting", func() bool { return group.held["first"] == s.partitions() })
	leaveFirst()
	s.say("read in all: %d", group.read.total())
	s.describeGroup(admin, "when all have left")
	s.groupOffsets(admin)
}

func (s *saramaClient) describeGroup(admin sarama.ClusterAdmin, when string) {
	described, err := admin.DescribeConsumerGroups([]string{s.topic("group")})
	check("describing a group", err)
	one := described[0]
	s.say("%s: %s %s %q, %d members", when, one.State, one.ProtocolType, one.Protocol, len(one.Members))
}

func (s *saramaClient) groupOffsets(admin sarama.ClusterAdmin) {
	topic, group := s.topic("codecs"), s.topic("group")
	var partitions []int32
	for partition := range s.partitions() {
		partitions = append(partitions, int32(partition))
	}
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	check("fetching offsets", err)
	for _, partition := range partitions {
		block := committed.GetBlock(topic, partition)
		s.say("committed %d: %d %q %s", partition, block.Offset, block.Metadata, saramaError(block.Err))
	}
	if s.since(sarama.V2_4_0_0) {
		check("deleting an offset", admin.DeleteConsumerGroupOffset(group, topic, 0))
	}
	listed, err := admin.ListConsumerGroups()
	check("listing groups", err)
	s.say("listed as %q", listed[group])
	if s.since(sarama.V1_1_0_0) {
		check("deleting a group", admin.DeleteConsumerGroup(group))
		s.say("deleted again: %s", saramaError(admin.DeleteConsumerGroup(group)))
	}
}

func (s *saramaClient) transactions() {
	config := s.config()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = s.topic("transactional")
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	check("a transactional producer", err)
	defer producer.Close()
	for number, end := range []func() error{producer.CommitTxn, producer.AbortTxn, producer.CommitTxn} {
		check("beginning", producer.BeginTxn())
		for partition := range 2 {
			_, offset, err := producer.SendMessage(&sarama.ProducerMessage{
				Topic: s.topic("copy"), Partition: int32(partition), Timestamp: s.time(number),
				Value: sarama.StringEncoder(fmt.Sprintf("transaction %d", number)),
			})
			check("producing", err)
			s.say("transaction %d writes %d of %d", number, offset, partition)
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{
			s.topic("codecs"): {{Partition: 0, Offset: int64(number + 10)}},
		}
		check("adding offsets", producer.AddOffsetsToTxn(offsets, s.topic("copiers")))
		check("ending", end())
	}
	s.readCopy()
}

func (s *saramaClient) readCopy() {
	for _, level := range []sarama.IsolationLevel{sarama.ReadCommitted, sarama.ReadUncommitted} {
		config := s.config()
		config.Consumer.IsolationLevel = level
		consumer, err := sarama.NewConsumer(s.bootstrap, config)
		check("a consumer", err)
		one, err := consumer.ConsumePartition(s.topic("copy"), 0, sarama.OffsetOldest)
		check("consuming", err)
		for last := ""; last != "transaction 2"; {
			select {
			case m := <-one.Messages():
				last = string(m.Value)
				s.say("level %d reads %d %s %s", level, m.Offset, last, m.Timestamp.Sub(s.begun))
			case <-time.After(patience):
				check("consuming", errors.New("not in time"))
			}
		}
		check("closing", consumer.Close())
	}
}

// The group has the offset of the first transaction until its coordinator has received the last one's marker.
func (s *saramaClient) committed(admin sarama.ClusterAdmin) int64 {
	limit := time.Now().Add(patience)
	for {
		offsets, err := admin.ListConsumerGroupOffsets(s.topic("copiers"), map[string][]int32{s.topic("codecs"): {0}})
		check("fetching offsets", err)
		offset := offsets.GetBlock(s.topic("codecs"), 0).Offset
		if offset != 10 || time.Now().After(limit) {
			return offset
		}
	}
}

func (s *saramaClient) end(admin sarama.ClusterAdmin) {
	if s.since(sarama.V0_11_0_0) {
		s.say("committed by the last transaction: %d", s.committed(admin))
	}
	brokers, controller, err := admin.DescribeCluster()
	check("describing the cluster", err)
	known := false
	for _, broker := range brokers {
		known = known || broker.ID() == controller
	}
	s.say("the controller is a broker: %v", known)
	check("deleting", admin.DeleteTopic(s.topic("codecs")))
	check("deleting", admin.DeleteTopic(s.topic("copy")))
	s.say("deleted again: %s", saramaError(admin.DeleteTopic(s.topic("missing"))))
}
