//go:build !tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const unknownState = primitive.UnknowState

// Client v2.1.2 has no TLS.
func producerTls(given words) []producer.Option {
	return nil
}

func consumerTls(given words) []consumer.Option {
	return nil
}
