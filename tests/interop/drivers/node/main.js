// The client ali-ons behind the line protocol of tests/interop/harness/drivers.py.
'use strict';

const crypto = require('crypto');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const producers = new Map();
const consumers = new Map();
const print = line => process.stdout.write(JSON.stringify(line) + '\n');
const digest = content => crypto.createHash('sha256').update(content).digest('hex');
const complain = error => process.stderr.write(`${error && error.stack}\n`);
// Only asked where name servers are found by HTTP; the client insists on having one.
const httpclient = { request: () => Promise.reject(new Error('no HTTP here')) };
const quiet = { debug() {}, info() {}, warn() {}, error: complain };

function message(words, index) {
  let body = words.body;
  if (words.bytes) {
    body = 'again and again '.repeat(words.bytes / 16 + 1).slice(0, Number(words.bytes));
  } else if (Number(words.count || 1) > 1) {
    body = `${body} ${index}`;
  }
  const tags = (words.tags || '').split(',');
  const made = new Message(words.topic, tags[index % tags.length], body);
  if (words.keys) {
    made.keys = words.keys.replace('{}', index).split(' ');
  }
  if (words.delayLevel) {
    made.delayTimeLevel = Number(words.delayLevel);
  }
  return made;
}

async function sendOne(words, index) {
  const one = message(words, index);
  // The client compresses the message's own body.
  const bodySha256 = digest(one.body);
  const result = await producers.get(words.producer).send(one);
  return {
    status: result.sendStatus, msgId: result.msgId, offsetMsgId: result.msgId, brokerName: result.messageQueue.brokerName,
    queueId: Number(result.messageQueue.queueId), queueOffset: Number(result.queueOffset), keys: one.keys, bodySha256,
  };
}

function arrived(words, one) {
  const refused = one.reconsumeTimes < Number(words.refuse || 0);
  print({
    event: 'message', consumer: words.name, refused, topic: one.topic, msgId: one.msgId, offsetMsgId: one.msgId,
    uniqueId: one.properties.UNIQ_KEY || one.msgId, queueOffset: Number(one.queueOffset), queueId: one.queueId,
    tags: one.tags, keys: one.keys, reconsumeTimes: one.reconsumeTimes, bodySha256: digest(one.body),
    bodyLength: one.body.length, body: one.body.length < 200 ? one.body.toString() : null,
  });
  return refused ? Consumer.ACTION_RETRY : undefined;
}

// Without an account the client does not sign.
function account(words) {
  return words.accessKey ? { accessKeyId: words.accessKey, accessKeySecret: words.secretKey } : {};
}

const actions = {
  async producer(words) {
    const made = new Producer({
      nameSrv: words.nameServer, producerGroup: words.group, instanceName: words.name, logger: quiet, httpclient,
      ...account(words),
    });
    made.on('error', complain);
    await made.ready();
    producers.set(words.name, made);
  },
  async send(words) {
    const sent = [];
    for (let index = 0; index < Number(words.count || 1); index++) {
      sent.push(words.mode === 'async' ? sendOne(words, index) : await sendOne(words, index));
    }
    return { sent: await Promise.all(sent) };
  },
  async closeProducer(words) {
    await producers.get(words.name).close();
    producers.delete(words.name);
  },
  async push(words) {
    const made = new Consumer({
      nameSrv: words.nameServer, consumerGroup: words.group, instanceName: words.name, logger: quiet, httpclient,
      ...account(words),
      isBroadcast: words.broadcasting === 'true', consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    });
    made.on('error', complain);
    made.subscribe(words.topic, words.tags || '*', async one => arrived(words, one));
    await made.ready();
    consumers.set(words.name, made);
  },
  async closePush(words) {
    await consumers.get(words.name).close();
    consumers.delete(words.name);
  },
};

async function answer(line) {
  const [ number, verb, ...parts ] = line.split('\t');
  const words = Object.fromEntries(parts.map(part => {
    const at = part.indexOf('=');
    return [ part.slice(0, at), decodeURIComponent(part.slice(at + 1)) ];
  }));
  try {
    print({ re: number, ...await actions[verb](words) });
  } catch (error) {
    print({ re: number, error: error.name, code: error.code || -1, message: error.message });
  }
}

print({ event: 'ready' });
readline.createInterface({ input: process.stdin }).on('line', answer).on('close', () => process.exit(0));
