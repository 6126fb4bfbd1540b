// The official Go client behind the line protocol of tests/interop/harness/drivers.py.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type object = map[string]interface{}
type words map[string]string

var (
	printing  sync.Mutex
	tables    sync.Mutex
	producers = map[string]rocketmq.Producer{}
	consumers = map[string]rocketmq.PushConsumer{}
	deciders  = map[string]rocketmq.TransactionProducer{}
)

func main() {
	rlog.SetLogLevel("error")
	show(object{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), "\t")
		given := words{}
		for _, part := range parts[2:] {
			name, value, _ := strings.Cut(part, "=")
			given[name], _ = url.PathUnescape(value)
		}
		go answer(parts[0], parts[1], given)
	}
}

func show(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func answer(number, verb string, given words) {
	line, err := run(verb, given)
	if err != nil {
		line = object{"error": fmt.Sprintf("%T", err), "code": -1, "message": err.Error()}
	}
	if line == nil {
		line = object{}
	}
	line["re"] = number
	show(line)
}

func run(verb string, given words) (object, error) {
	switch verb {
	case "producer":
		return nil, startProducer(given)
	case "send":
		return send(given)
	case "batch":
		return batch(given)
	case "transactionalProducer":
		return nil, startTransactional(given)
	case "sendInTransaction":
		return sendInTransaction(given)
	case "closeProducer":
		if decider := take(deciders, given["name"]); decider != nil {
			return nil, decider.Shutdown()
		}
		return nil, take(producers, given["name"]).Shutdown()
	case "push":
		return nil, push(given)
	case "closePush":
		return nil, take(consumers, given["name"]).Shutdown()
	}
	return nil, errors.New("no such verb: " + verb)
}

func take[T any](table map[string]T, name string) T {
	tables.Lock()
	defer tables.Unlock()
	found := table[name]
	delete(table, name)
	return found
}

func (given words) number(name string, otherwise int) int {
	if value, err := strconv.Atoi(given[name]); err == nil {
		return value
	}
	return otherwise
}

// Without an account the client does not sign.
func (given words) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: given["accessKey"], SecretKey: given["secretKey"], SecurityToken: given["token"]}
}

func startProducer(given words) error {
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{given["nameServer"]})),
		producer.WithGroupName(given["group"]),
		producer.WithInstanceName(given["name"]),
		producer.WithSendMsgTimeout(10 * time.Second),
		producer.WithCredentials(given.credentials()),
		producer.WithQueueSelector(bySharding{producer.NewRoundRobinQueueSelector()}),
	}
	made, err := rocketmq.NewProducer(append(options, producerTls(given)...)...)
	if err != nil {
		return err
	}
	tables.Lock()
	producers[given["name"]] = made
	tables.Unlock()
	return made.Start()
}

// The outcome of a transaction, at once and when asked again, is told by the message's own properties.
type decisions struct{ producer string }

func outcome(told string) primitive.LocalTransactionState {
	switch told {
	case "COMMIT_MESSAGE":
		return primitive.CommitMessageState
	case "ROLLBACK_MESSAGE":
		return primitive.RollbackMessageState
	}
	return unknownState
}

func (told decisions) ExecuteLocalTransaction(one *primitive.Message) primitive.LocalTransactionState {
	return outcome(one.GetProperty("first"))
}

func (told decisions) CheckLocalTransaction(one *primitive.MessageExt) primitive.LocalTransactionState {
	show(object{"event": "checked", "producer": told.producer, "topic": one.Topic, "msgId": one.MsgId, "keys": one.GetKeys()})
	return outcome(one.GetProperty("checked"))
}

func startTransactional(given words) error {
	made, err := rocketmq.NewTransactionProducer(
		decisions{given["name"]},
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{given["nameServer"]})),
		producer.WithGroupName(given["group"]),
		producer.WithInstanceName(given["name"]),
		producer.WithSendMsgTimeout(10*time.Second),
		producer.WithCredentials(given.credentials()),
	)
	if err != nil {
		return err
	}
	tables.Lock()
	deciders[given["name"]] = made
	tables.Unlock()
	return made.Start()
}

func sendInTransaction(given words) (object, error) {
	tables.Lock()
	sender := deciders[given["producer"]]
	tables.Unlock()
	sent := make([]object, 0)
	for i := 0; i < given.number("count", 1); i++ {
		one := message(given, i)
		one.WithProperty("first", given["first"])
		one.WithProperty("checked", given["checked"])
		result, err := sender.SendMessageInTransaction(context.Background(), one)
		if err != nil {
			return nil, err
		}
		sent = append(sent, describe(one, result.SendResult, 0))
	}
	return object{"sent": sent}, nil
}

// Messages with a sharding key go to the queue of that number, others take turns.
type bySharding struct{ others producer.QueueSelector }

func (chosen bySharding) Select(message *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if shard, err := strconv.Atoi(message.GetShardingKey()); err == nil {
		for _, queue := range queues {
			if queue.QueueId == shard%len(queues) {
				return queue
			}
		}
	}
	return chosen.others.Select(message, queues, last)
}

func message(given words, index int) *primitive.Message {
	body := given["body"]
	if given.number("count", 1) > 1 {
		body = fmt.Sprintf("%s %d", body, index)
	}
	if size := given.number("bytes", 0); size > 0 {
		body = strings.Repeat("again and again ", size/16+1)[:size]
	}
	made := primitive.NewMessage(given["topic"], []byte(body))
	if given["tags"] != "" {
		tags := strings.Split(given["tags"], ",")
		made.WithTag(tags[index%len(tags)])
	}
	if given["keys"] != "" {
		made.WithKeys(strings.Split(strings.ReplaceAll(given["keys"], "{}", strconv.Itoa(index)), " "))
	}
	if shards := given.number("shards", 0); shards > 0 {
		made.WithShardingKey(strconv.Itoa(index % shards))
	}
	if level := given.number("delayLevel", 0); level > 0 {
		made.WithDelayTimeLevel(level)
	}
	return made
}

func send(given words) (object, error) {
	tables.Lock()
	sender := producers[given["producer"]]
	tables.Unlock()
	count := given.number("count", 1)
	sent := make([]object, 0, count)
	var guard sync.Mutex
	var waiting sync.WaitGroup
	var failure error
	for i := 0; i < count; i++ {
		one := message(given, i)
		switch given["mode"] {
		case "oneway":
			if err := sender.SendOneWay(context.Background(), one); err != nil {
				return nil, err
			}
		case "async":
			waiting.Add(1)
			err := sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
				guard.Lock()
				defer guard.Unlock()
				defer waiting.Done()
				if err != nil {
					failure = err
				} else {
					sent = append(sent, describe(one, result, 0))
				}
			}, one)
			if err != nil {
				return nil, err
			}
		default:
			result, err := sender.SendSync(context.Background(), one)
			if err != nil {
				return nil, err
			}
			sent = append(sent, describe(one, result, 0))
		}
	}
	waiting.Wait()
	return object{"sent": sent}, failure
}

func batch(given words) (object, error) {
	tables.Lock()
	sender := producers[given["producer"]]
	tables.Unlock()
	members := make([]*primitive.Message, given.number("count", 1))
	for i := range members {
		members[i] = message(given, i)
	}
	result, err := sender.SendSync(context.Background(), members...)
	if err != nil {
		return nil, err
	}
	sent := make([]object, len(members))
	for i, one := range members {
		sent[i] = describe(one, result, int64(i))
	}
	return object{"sent": sent}, nil
}

func describe(one *primitive.Message, result *primitive.SendResult, member int64) object {
	status := map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK"}[result.Status]
	return object{
		"status": status, "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
		"brokerName": result.MessageQueue.BrokerName, "queueId": result.MessageQueue.QueueId,
		"queueOffset": result.QueueOffset + member, "keys": one.GetKeys(), "bodySha256": digest(one.Body),
	}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func push(given words) error {
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{given["nameServer"]})),
		consumer.WithGroupName(given["group"]),
		consumer.WithInstance(given["name"]),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(given["orderly"] == "true"),
		consumer.WithCredentials(given.credentials()),
	}
	if given["broadcasting"] == "true" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	made, err := rocketmq.NewPushConsumer(append(options, consumerTls(given)...)...)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if given["tags"] != "" {
		selector.Expression = given["tags"]
	}
	if given["sql"] != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: given["sql"]}
	}
	err = made.Subscribe(given["topic"], selector, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		refused := false
		for _, one := range messages {
			refuses := int(one.ReconsumeTimes) < given.number("refuse", 0)
			refused = refused || refuses
			arrived(given["name"], one, refuses)
		}
		if !refused {
			return consumer.ConsumeSuccess, nil
		}
		if context, found := primitive.GetConcurrentlyCtx(ctx); found {
			context.DelayLevelWhenNextConsume = given.number("retryLevel", 0)
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		return err
	}
	tables.Lock()
	consumers[given["name"]] = made
	tables.Unlock()
	return made.Start()
}

func arrived(name string, one *primitive.MessageExt, refused bool) {
	line := object{
		"event": "message", "consumer": name, "refused": refused, "topic": one.Topic, "msgId": one.MsgId,
		"offsetMsgId": one.OffsetMsgId, "uniqueId": one.GetProperty("UNIQ_KEY"), "queueOffset": one.QueueOffset,
		"queueId": one.Queue.QueueId, "brokerName": one.Queue.BrokerName, "tags": one.GetTags(), "keys": one.GetKeys(),
		"reconsumeTimes": one.ReconsumeTimes, "bodySha256": digest(one.Body), "bodyLength": len(one.Body),
	}
	if len(one.Body) < 200 {
		line["body"] = string(one.Body)
	}
	show(line)
}
