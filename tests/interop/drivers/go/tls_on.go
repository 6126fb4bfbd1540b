//go:build tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const unknownState = primitive.UnkonwnState

// The client verifies no certificate, and has none of its own.
func producerTls(given words) []producer.Option {
	return []producer.Option{producer.WithTls(given["tls"] == "true")}
}

func consumerTls(given words) []consumer.Option {
	return []consumer.Option{consumer.WithTls(given["tls"] == "true")}
}
