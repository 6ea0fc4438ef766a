// franz-go against one broker: `franz COMMAND BOOTSTRAP ARGUMENTS`, arguments and answer in JSON. What it prints last is its answer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type arguments struct {
	Topic    string   `json:"topic"`
	Sink     string   `json:"sink"`
	Group    string   `json:"group"`
	Codec    string   `json:"codec"`
	ID       string   `json:"id"`
	Protocol string   `json:"protocol"`
	Count    int      `json:"count"`
	Values   []string `json:"values"`
	CA       string   `json:"ca"`
	Logins   []login  `json:"logins"`
}

var limit = 60 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var given arguments
	must(json.Unmarshal([]byte(os.Args[3]), &given))
	commands := map[string]func(context.Context, string, arguments) any{
		"produce": produce, "consume": consume, "group": group, "rebalance": rebalance,
		"transact": transact, "copy": copyInTransactions, "admin": admin, "logins": logins,
		"push": push,
	}
	answer := commands[os.Args[1]](ctx, os.Args[2], given)
	text, err := json.Marshal(answer)
	must(err)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "franz:", err)
		os.Exit(1)
	}
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
	must(err)
	return made
}

func codecOf(name string) kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[name]
}

func records(topic string, values []string) []*kgo.Record {
	made := make([]*kgo.Record, 0, len(values))
	for _, value := range values {
		made = append(made, &kgo.Record{
			Topic: topic, Key: []byte("key of " + value), Value: []byte(value),
			Headers: []kgo.RecordHeader{{Key: "from", Value: []byte("franz")}},
		})
	}
	return made
}

// produce is idempotent with acks=all, which is the client's default.
func produce(ctx context.Context, bootstrap string, given arguments) any {
	producing := client(bootstrap, kgo.ProducerBatchCompression(codecOf(given.Codec)))
	defer producing.Close()
	must(producing.ProduceSync(ctx, records(given.Topic, given.Values)...).FirstErr())
	return map[string]any{"produced": len(given.Values)}
}

func take(ctx context.Context, reading *kgo.Client, count int) []string {
	values := []string{}
	for len(values) < count && ctx.Err() == nil {
		fetches := reading.PollFetches(ctx)
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			must(err)
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	sort.Strings(values)
	return values
}

func consume(ctx context.Context, bootstrap string, given arguments) any {
	reading := client(bootstrap, kgo.ConsumeTopics(given.Topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reading.Close()
	return map[string]any{"values": take(ctx, reading, given.Count)}
}

func member(bootstrap string, given arguments, more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{
		kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if given.Protocol == "consumer" {
		options = append(options, kgo.WithContext(
			context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)))
	}
	return client(bootstrap, append(options, more...)...)
}

// group reads `count` records as a member, commits, and leaves.
func group(ctx context.Context, bootstrap string, given arguments) any {
	reading := member(bootstrap, given)
	values := take(ctx, reading, given.Count)
	must(reading.CommitUncommittedOffsets(ctx))
	reading.CloseAllowingRebalance()
	return map[string]any{"values": values}
}

// owned notes which partitions a member has.
type owned struct {
	sync.Mutex
	partitions map[int32]bool
}

func (o *owned) options() []kgo.Opt {
	change := func(have bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			o.Lock()
			defer o.Unlock()
			for _, partitions := range changed {
				for _, partition := range partitions {
					if have {
						o.partitions[partition] = true
					} else {
						delete(o.partitions, partition)
					}
				}
			}
		}
	}
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}
}

func (o *owned) count() int {
	o.Lock()
	defer o.Unlock()
	return len(o.partitions)
}

// rebalance lets a second member come and go: `count` partitions are shared, and come back.
func rebalance(ctx context.Context, bootstrap string, given arguments) any {
	first, second := &owned{partitions: map[int32]bool{}}, &owned{partitions: map[int32]bool{}}
	one := member(bootstrap, given, first.options()...)
	polling, stop := context.WithCancel(ctx)
	defer stop()
	poll := func(reading *kgo.Client) {
		for polling.Err() == nil && !reading.PollFetches(polling).IsClientClosed() {
		}
	}
	await := func(what string, done func() bool) {
		for !done() {
			if ctx.Err() != nil {
				must(fmt.Errorf("%s never came: %d and %d partitions", what, first.count(), second.count()))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	go poll(one)
	await("the first assignment", func() bool { return first.count() == given.Count })
	two := member(bootstrap, given, second.options()...)
	go poll(two)
	await("sharing", func() bool { return second.count() > 0 && first.count()+second.count() == given.Count })
	shared := []int{first.count(), second.count()}
	two.Close()
	await("the return", func() bool { return first.count() == given.Count })
	alone := first.count()
	one.Close()
	return map[string]any{"shared": shared, "alone": alone}
}

// transact commits the values, and aborts as many others.
func transact(ctx context.Context, bootstrap string, given arguments) any {
	producing := client(bootstrap, kgo.TransactionalID(given.ID))
	defer producing.Close()
	aborted := []string{}
	for _, value := range given.Values {
		aborted = append(aborted, "aborted "+value)
	}
	for _, step := range []struct {
		values []string
		end    kgo.TransactionEndTry
	}{{aborted, kgo.TryAbort}, {given.Values, kgo.TryCommit}, {aborted, kgo.TryAbort}} {
		must(producing.BeginTransaction())
		must(producing.ProduceSync(ctx, records(given.Topic, step.values)...).FirstErr())
		must(producing.EndTransaction(ctx, step.end))
	}
	return map[string]any{"committed": len(given.Values)}
}

// copyInTransactions moves `count` records from one topic to another, offsets and records in the same transactions.
func copyInTransactions(ctx context.Context, bootstrap string, given arguments) any {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(given.ID), kgo.ConsumerGroup(given.Group),
		kgo.ConsumeTopics(given.Topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err)
	defer session.Close()
	copied := 0
	for copied < given.Count && ctx.Err() == nil {
		fetches := session.PollFetches(ctx)
		must(session.Begin())
		moved := 0
		fetches.EachRecord(func(record *kgo.Record) {
			moved++
			session.Produce(ctx, &kgo.Record{Topic: given.Sink, Value: record.Value}, func(_ *kgo.Record, err error) { must(err) })
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		must(err)
		if committed {
			copied += moved
		}
	}
	return map[string]any{"copied": copied}
}

// push writes and reads as a member until its input ends. The client pushes its metrics, and one of the application (KIP-1076).
func push(ctx context.Context, bootstrap string, given arguments) any {
	var produced atomic.Int64
	ofApplication := func() iter.Seq[kgo.Metric] {
		return func(yield func(kgo.Metric) bool) {
			yield(kgo.Metric{
				Name: "application.records", Type: kgo.MetricTypeSum, ValueInt: produced.Load(),
				Attrs: map[string]any{"kind": "written"},
			})
		}
	}
	working := member(bootstrap, given, kgo.ClientID(given.ID), kgo.UserMetricsFn(ofApplication))
	inputEnds := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		inputEnds <- err
	}()
	for {
		must(working.ProduceSync(ctx, records(given.Topic, given.Values)...).FirstErr())
		produced.Add(int64(len(given.Values)))
		take(ctx, working, len(given.Values))
		must(working.CommitUncommittedOffsets(ctx))
		select {
		case err := <-inputEnds:
			must(err)
			working.CloseAllowingRebalance()
			return map[string]any{"produced": produced.Load()}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func admin(ctx context.Context, bootstrap string, given arguments) any {
	asking := client(bootstrap)
	defer asking.Close()
	adm := kadm.NewClient(asking)
	created, err := adm.CreateTopic(ctx, 3, 1, nil, given.Topic)
	must(err)
	details, err := adm.ListTopics(ctx, given.Topic)
	must(err)
	described, err := adm.DescribeGroups(ctx, given.Group)
	must(err)
	lags, err := adm.Lag(ctx, given.Group)
	must(err)
	listed, err := adm.ListGroups(ctx)
	must(err)
	_, isListed := listed[given.Group]
	offsets, err := adm.FetchOffsets(ctx, given.Group)
	must(err)
	_, err = adm.DeleteTopics(ctx, given.Topic)
	must(err)
	deleted, err := adm.DeleteGroup(ctx, given.Group)
	must(err)
	lag := lags[given.Group]
	return map[string]any{
		"created": created.Topic, "partitions": len(details[given.Topic].Partitions), "state": described[given.Group].State,
		"lag": lag.Lag.Total(), "listed": isListed, "offsets": len(offsets), "deleted": deleted.Group,
	}
}
