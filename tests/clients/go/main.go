// Walks through the features of a Go client of Kafka and prints the results.
//
//	clients franz BOOTSTRAP STEM REPLICATION
//	clients franz-consumer BOOTSTRAP STEM REPLICATION
//	clients sarama VERSION BOOTSTRAP STEM REPLICATION
//	clients franz-logins FILE
//	clients sarama-logins FILE
//
// A line of the output is one fact. Values that differ from run to run (the stem of topics, ids, times) are left out or
// printed relative to the request, so that two brokers that do the same get the same text.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Longer than any step takes, however slow the machine; a walk that hangs ends and prints its condition.
const patience = 150 * time.Second

// Longer than a member is ever silent, also where three clients and a broker share a slow core.
const session = 30 * time.Second

// How many records a codec's batch has.
const perCodec = 20

// A walk is one run over one broker: its address, the prefix of its topics, and the time of its start.
type walk struct {
	bootstrap   []string
	stem        string
	replication int16
	begun       time.Time
}

func newWalk(arguments []string) *walk {
	replication, err := strconv.Atoi(arguments[2])
	check("the number of replicas", err)
	// An hour ago, so that a record with a time of its own differs from one with the broker's.
	begun := time.Now().Add(-time.Hour).Truncate(time.Second)
	return &walk{strings.Split(arguments[0], ","), arguments[1], int16(replication), begun}
}

func (w *walk) topic(name string) string { return w.stem + "-" + name }

// The time of the n-th record of a walk.
func (w *walk) time(n int) time.Time { return w.begun.Add(time.Duration(n) * time.Second) }

func (w *walk) say(format string, values ...any) {
	fmt.Println(strings.ReplaceAll(fmt.Sprintf(format, values...), w.stem, "STEM"))
}

// settle returns when every broker has the topics with this many partitions in its metadata: a broker receives them a
// moment after the controller creates them, and the client chooses the broker.
func (w *walk) settle(partitions map[string]int) {
	limit := time.Now().Add(patience)
	for _, address := range w.bootstrap {
		for !w.knows(address, partitions) {
			require("topics that every broker knows", time.Now().Before(limit))
		}
	}
}

func (w *walk) knows(address string, partitions map[string]int) bool {
	broker := sarama.NewBroker(address)
	check("connecting", broker.Open(sarama.NewConfig()))
	defer broker.Close()
	request := &sarama.MetadataRequest{Version: 4} // in which a request creates no topic
	for name := range partitions {
		request.Topics = append(request.Topics, w.topic(name))
	}
	answer, err := broker.GetMetadata(request)
	check("metadata", err)
	for _, topic := range answer.Topics {
		if len(topic.Partitions) != partitions[strings.TrimPrefix(topic.Name, w.stem+"-")] {
			return false
		}
	}
	return true
}

// check ends the program on an error.
func check(what string, err error) {
	if err != nil {
		fmt.Printf("%s failed: %v\n", what, err)
		os.Exit(1)
	}
}

func require(what string, holds bool) {
	if !holds {
		fmt.Printf("%s: not so\n", what)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "franz-logins" {
		runLogins(os.Args[2], franzLogin)
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "sarama-logins" {
		runLogins(os.Args[2], saramaLogin)
		return
	}
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: clients franz|franz-consumer|sarama [VERSION] BOOTSTRAP STEM REPLICATION")
		os.Exit(2)
	}
	switch program := os.Args[1]; program {
	case "franz":
		franz(newWalk(os.Args[2:]))
	case "franz-consumer":
		franzConsumerProtocol(newWalk(os.Args[2:]))
	case "sarama":
		saramaWalk(os.Args[2], newWalk(os.Args[3:]))
	default:
		fmt.Fprintln(os.Stderr, "no such program: "+program)
		os.Exit(2)
	}
}
