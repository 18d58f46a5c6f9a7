package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// Long enough for a login on a slow machine.
const loginPatience = 30 * time.Second

// A login is a line of the input: a user of a broker with TLS. Without a mechanism the user is that of the certificate.
type login struct {
	Name, Bootstrap, Topic    string
	Authorities, Keystore     string
	Mechanism, User, Password string
	Token                     string
}

// runLogins writes and reads a record with each login of the file, and prints the outcome of each: the record, or the
// error with which the broker rejected the login.
func runLogins(file string, exchange func(context.Context, *login) (string, error)) {
	input, err := os.Open(file)
	check("opening the logins", err)
	defer input.Close()
	for lines := bufio.NewScanner(input); lines.Scan(); {
		var each login
		check("reading a login", json.Unmarshal(lines.Bytes(), &each))
		ctx, cancel := context.WithTimeout(context.Background(), loginPatience)
		value, err := exchange(ctx, &each)
		cancel()
		if err != nil {
			value = "error: " + err.Error()
		}
		fmt.Printf("%s: %s\n", each.Name, value)
	}
}

func (l *login) tls() *tls.Config {
	authorities, err := os.ReadFile(l.Authorities)
	check("reading the authorities", err)
	pool := x509.NewCertPool()
	require("the authorities", pool.AppendCertsFromPEM(authorities))
	config := &tls.Config{RootCAs: pool}
	if l.Keystore != "" {
		certificate, err := tls.LoadX509KeyPair(l.Keystore, l.Keystore)
		check("reading the certificate", err)
		config.Certificates = []tls.Certificate{certificate}
	}
	return config
}

func (l *login) franzMechanism() sasl.Mechanism {
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: l.Token}.AsMechanism()
	}
}

func franzLogin(ctx context.Context, l *login) (string, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(l.Bootstrap), kgo.DialTLSConfig(l.tls()), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(l.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if l.Mechanism != "" {
		options = append(options, kgo.SASL(l.franzMechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return "", err
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: l.Topic, Value: []byte("by franz-go")}).FirstErr(); err != nil {
		return "", err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if records := fetches.Records(); len(records) > 0 {
			return string(records[0].Value), nil
		}
	}
}

// xdgClient is the SCRAM client of Sarama's own example.
type xdgClient struct {
	hash         xdg.HashGeneratorFcn
	conversation *xdg.ClientConversation
}

func (c *xdgClient) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *xdgClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *xdgClient) Done() bool { return c.conversation.Done() }

func (l *login) sarama() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Metadata.Retry.Max = 0
	config.Net.TLS.Enable, config.Net.TLS.Config = true, l.tls()
	if l.Mechanism == "" {
		return config
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(l.Mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = l.User, l.Password
	hash := xdg.SHA256
	if l.Mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = xdg.SHA512
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &xdgClient{hash: hash} }
	config.Net.SASL.TokenProvider = tokenOf{l.Token}
	return config
}

type tokenOf struct{ token string }

func (t tokenOf) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: t.token}, nil
}

func saramaLogin(ctx context.Context, l *login) (string, error) {
	config, addresses := l.sarama(), []string{l.Bootstrap}
	admin, err := sarama.NewClusterAdmin(addresses, config)
	if err != nil {
		return "", err
	}
	defer admin.Close()
	if err := admin.CreateTopic(l.Topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		return "", err
	}
	config.Metadata.Retry.Max = 100 // until every broker has the topic
	producer, err := sarama.NewSyncProducer(addresses, config)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: l.Topic, Value: sarama.StringEncoder("by Sarama")})
	if err != nil {
		return "", err
	}
	consumer, err := sarama.NewConsumer(addresses, config)
	if err != nil {
		return "", err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(l.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return "", err
	}
	defer partition.Close()
	select {
	case message := <-partition.Messages():
		return string(message.Value), nil
	case <-ctx.Done():
		return "", errors.New("no record in time")
	}
}
