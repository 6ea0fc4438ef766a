// sarama against one broker: `sarama COMMAND BOOTSTRAP ARGUMENTS`, arguments and answer in JSON. What it prints last is its answer.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type arguments struct {
	Topic  string   `json:"topic"`
	Sink   string   `json:"sink"`
	Group  string   `json:"group"`
	Codec  string   `json:"codec"`
	ID     string   `json:"id"`
	Count  int      `json:"count"`
	Values []string `json:"values"`
	CA     string   `json:"ca"`
	Logins []login  `json:"logins"`
}

var limit = 60 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var given arguments
	must(json.Unmarshal([]byte(os.Args[3]), &given))
	commands := map[string]func(context.Context, []string, arguments) any{
		"produce": produce, "consume": consume, "group": group, "rebalance": rebalance,
		"transact": transact, "copy": copyInTransactions, "admin": admin, "logins": logins,
	}
	answer := commands[os.Args[1]](ctx, []string{os.Args[2]}, given)
	text, err := json.Marshal(answer)
	must(err)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "sarama:", err)
		os.Exit(1)
	}
}

func settings() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Return.Successes = true
	made.Producer.Idempotent = true
	made.Net.MaxOpenRequests = 1
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Consumer.MaxWaitTime = 100 * time.Millisecond
	return made
}

func messages(topic string, values []string) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, 0, len(values))
	for _, value := range values {
		made = append(made, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("key of " + value), Value: sarama.StringEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte("from"), Value: []byte("sarama")}},
		})
	}
	return made
}

func produce(_ context.Context, bootstrap []string, given arguments) any {
	config := settings()
	if given.Codec != "" {
		must(config.Producer.Compression.UnmarshalText([]byte(given.Codec)))
	}
	producing, err := sarama.NewSyncProducer(bootstrap, config)
	must(err)
	must(producing.SendMessages(messages(given.Topic, given.Values)))
	must(producing.Close())
	return map[string]any{"produced": len(given.Values)}
}

// consume reads every partition from its beginning, without a group.
func consume(ctx context.Context, bootstrap []string, given arguments) any {
	reading, err := sarama.NewConsumer(bootstrap, settings())
	must(err)
	partitions, err := reading.Partitions(given.Topic)
	must(err)
	found := make(chan string)
	for _, partition := range partitions {
		part, err := reading.ConsumePartition(given.Topic, partition, sarama.OffsetOldest)
		must(err)
		go func() {
			for message := range part.Messages() {
				found <- string(message.Value)
			}
		}()
	}
	values := []string{}
	for len(values) < given.Count {
		select {
		case value := <-found:
			values = append(values, value)
		case <-ctx.Done():
			must(fmt.Errorf("%d records came, not %d", len(values), given.Count))
		}
	}
	sort.Strings(values)
	return map[string]any{"values": values}
}

// handler is one member's: it counts what it owns, and hands on what it reads.
type handler struct {
	sync.Mutex
	owned  int
	values []string
	enough int
	done   context.CancelFunc
	each   func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage)
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	h.Lock()
	defer h.Unlock()
	h.owned = 0
	for _, partitions := range session.Claims() {
		h.owned += len(partitions)
	}
	return nil
}

func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	h.Lock()
	defer h.Unlock()
	h.owned = 0
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.Lock()
			if h.each != nil {
				h.each(session, message)
			} else {
				session.MarkMessage(message, "")
			}
			h.values = append(h.values, string(message.Value))
			if h.enough > 0 && len(h.values) >= h.enough {
				if h.each == nil {
					session.Commit()
				}
				h.done()
			}
			h.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (h *handler) count() int {
	h.Lock()
	defer h.Unlock()
	return h.owned
}

func join(ctx context.Context, bootstrap []string, given arguments, member *handler) sarama.ConsumerGroup {
	joined, err := sarama.NewConsumerGroup(bootstrap, given.Group, settings())
	must(err)
	go func() {
		for ctx.Err() == nil {
			if joined.Consume(ctx, []string{given.Topic}, member) != nil {
				return
			}
		}
	}()
	return joined
}

// group reads `count` records as a member, commits, and leaves.
func group(ctx context.Context, bootstrap []string, given arguments) any {
	reading, done := context.WithCancel(ctx)
	member := &handler{enough: given.Count, done: done}
	joined := join(reading, bootstrap, given, member)
	<-reading.Done()
	must(joined.Close())
	member.Lock()
	defer member.Unlock()
	sort.Strings(member.values)
	return map[string]any{"values": member.values}
}

// rebalance lets a second member come and go: `count` partitions are shared, and come back.
func rebalance(ctx context.Context, bootstrap []string, given arguments) any {
	first, second := &handler{}, &handler{}
	await := func(what string, done func() bool) {
		for !done() {
			if ctx.Err() != nil {
				must(fmt.Errorf("%s never came: %d and %d partitions", what, first.count(), second.count()))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	one := join(ctx, bootstrap, given, first)
	await("the first assignment", func() bool { return first.count() == given.Count })
	two := join(ctx, bootstrap, given, second)
	await("sharing", func() bool { return second.count() > 0 && first.count()+second.count() == given.Count })
	shared := []int{first.count(), second.count()}
	must(two.Close())
	await("the return", func() bool { return first.count() == given.Count })
	alone := first.count()
	must(one.Close())
	return map[string]any{"shared": shared, "alone": alone}
}

func transactional(bootstrap []string, id string) sarama.SyncProducer {
	config := settings()
	config.Producer.Transaction.ID = id
	producing, err := sarama.NewSyncProducer(bootstrap, config)
	must(err)
	return producing
}

// transact commits the values, and aborts as many others.
func transact(_ context.Context, bootstrap []string, given arguments) any {
	producing := transactional(bootstrap, given.ID)
	aborted := []string{}
	for _, value := range given.Values {
		aborted = append(aborted, "aborted "+value)
	}
	for _, step := range []struct {
		values []string
		end    func() error
	}{{aborted, producing.AbortTxn}, {given.Values, producing.CommitTxn}, {aborted, producing.AbortTxn}} {
		must(producing.BeginTxn())
		must(producing.SendMessages(messages(given.Topic, step.values)))
		must(step.end())
	}
	must(producing.Close())
	return map[string]any{"committed": len(given.Values)}
}

// copyInTransactions moves `count` records from one topic to another, each with its offset in one transaction.
func copyInTransactions(ctx context.Context, bootstrap []string, given arguments) any {
	producing := transactional(bootstrap, given.ID)
	reading, done := context.WithCancel(ctx)
	member := &handler{enough: given.Count, done: done}
	member.each = func(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
		must(producing.BeginTxn())
		_, _, err := producing.SendMessage(&sarama.ProducerMessage{Topic: given.Sink, Value: sarama.ByteEncoder(message.Value)})
		must(err)
		must(producing.AddMessageToTxn(message, given.Group, nil))
		must(producing.CommitTxn())
	}
	joined := join(reading, bootstrap, given, member)
	<-reading.Done()
	must(joined.Close())
	must(producing.Close())
	return map[string]any{"copied": len(member.values)}
}

func admin(_ context.Context, bootstrap []string, given arguments) any {
	asking, err := sarama.NewClusterAdmin(bootstrap, settings())
	must(err)
	must(asking.CreateTopic(given.Topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false))
	topics, err := asking.DescribeTopics([]string{given.Topic})
	must(err)
	groups, err := asking.ListConsumerGroups()
	must(err)
	described, err := asking.DescribeConsumerGroups([]string{given.Group})
	must(err)
	offsets, err := asking.ListConsumerGroupOffsets(given.Group, nil)
	must(err)
	_, listed := groups[given.Group]
	must(asking.DeleteTopic(given.Topic))
	must(asking.DeleteConsumerGroup(given.Group))
	must(asking.Close())
	return map[string]any{
		"created": given.Topic, "partitions": len(topics[0].Partitions), "state": described[0].State, "listed": listed,
		"offsets": len(offsets.Blocks), "deleted": given.Group,
	}
}
