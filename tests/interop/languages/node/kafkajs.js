// kafkajs against one broker: `node kafkajs.js COMMAND BOOTSTRAP ARGUMENTS`, arguments and answer in JSON. What it prints last is its
// answer. This client sends the oldest versions of all: none of its requests is flexible.
"use strict";

const fs = require("fs");
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require("kafkajs");
const SnappyCodec = require("kafkajs-snappy");
const lz4 = require("lz4js");

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 };
const LIMIT_MS = 60_000;
const started = Date.now();

const [, , command, bootstrap, text] = process.argv;
const given = JSON.parse(text);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } });

const messages = (values) => values.map((value) => ({ key: `key of ${value}`, value, headers: { from: "kafkajs" } }));

async function until(what, done) {
  while (!done()) {
    if (Date.now() - started > LIMIT_MS) throw new Error(`${what} never came`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const compression = CODECS[given.codec || "none"];
  await producer.send({ topic: given.topic, acks: -1, compression, messages: messages(given.values) });
  await producer.disconnect();
  return { produced: given.values.length };
}

async function member(groupId, handlers, autoCommit = false) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, heartbeatInterval: 300, maxWaitTimeInMs: 100 });
  const state = { consumer, owned: 0, values: [] };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.owned = (payload.memberAssignment[given.topic] || []).length;
  });
  await consumer.connect();
  await consumer.subscribe({ topic: given.topic, fromBeginning: true });
  await consumer.run({
    autoCommit,
    eachMessage: async ({ partition, message }) => {
      if (handlers) await handlers(consumer, partition, message);
      state.values.push(message.value.toString());
    },
  });
  return state;
}

async function read(groupId) {
  const state = await member(groupId, null, true);
  await until("the records", () => state.values.length >= given.count);
  await state.consumer.disconnect();
  return { values: state.values.sort() };
}

async function rebalance() {
  const first = await member(given.group);
  await until("the first assignment", () => first.owned === given.count);
  const second = await member(given.group);
  await until("sharing", () => second.owned > 0 && first.owned + second.owned === given.count);
  const shared = [first.owned, second.owned];
  await second.consumer.disconnect();
  await until("the return", () => first.owned === given.count);
  const alone = first.owned;
  await first.consumer.disconnect();
  return { shared, alone };
}

async function transactional() {
  const producer = kafka.producer({ transactionalId: given.id, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  return producer;
}

async function transact() {
  const producer = await transactional();
  const aborted = given.values.map((value) => `aborted ${value}`);
  for (const [values, end] of [[aborted, "abort"], [given.values, "commit"], [aborted, "abort"]]) {
    const transaction = await producer.transaction();
    await transaction.send({ topic: given.topic, messages: messages(values) });
    await transaction[end]();
  }
  await producer.disconnect();
  return { committed: given.values.length };
}

async function copy() {
  const producer = await transactional();
  const state = await member(given.group, async (consumer, partition, message) => {
    const transaction = await producer.transaction();
    await transaction.send({ topic: given.sink, messages: [{ value: message.value }] });
    const offset = (BigInt(message.offset) + 1n).toString();
    await transaction.sendOffsets({
      consumerGroupId: given.group,
      topics: [{ topic: given.topic, partitions: [{ partition, offset }] }],
    });
    await transaction.commit();
  });
  await until("the records", () => state.values.length >= given.count);
  await state.consumer.disconnect();
  await producer.disconnect();
  return { copied: state.values.length };
}

async function admin() {
  const asking = kafka.admin();
  await asking.connect();
  await asking.createTopics({ topics: [{ topic: given.topic, numPartitions: 3 }] });
  const { topics } = await asking.fetchTopicMetadata({ topics: [given.topic] });
  const { groups } = await asking.listGroups();
  const described = await asking.describeGroups([given.group]);
  const offsets = await asking.fetchOffsets({ groupId: given.group });
  await asking.deleteTopics({ topics: [given.topic] });
  const deleted = await asking.deleteGroups([given.group]);
  await asking.disconnect();
  return {
    created: given.topic,
    partitions: topics[0].partitions.length,
    state: described.groups[0].state,
    listed: groups.some((one) => one.groupId === given.group),
    offsets: offsets.length,
    deleted: deleted[0].groupId,
  };
}

/** One record for each login: "written", or the client's own words. */
async function logins() {
  const ssl = { ca: [fs.readFileSync(given.ca, "utf-8")] };
  const outcomes = [];
  for (const { mechanism, user, password, token } of given.logins) {
    const sasl =
      mechanism === "OAUTHBEARER"
        ? { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) }
        : { mechanism: mechanism.toLowerCase(), username: user, password };
    const secured = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 0 }, ssl, sasl });
    const producer = secured.producer();
    try {
      await producer.connect();
      await producer.send({ topic: given.topic, acks: -1, messages: messages([user]) });
      outcomes.push("written");
    } catch (error) {
      outcomes.push(error.message);
    } finally {
      await producer.disconnect();
    }
  }
  return { outcomes };
}

const commands = {
  produce,
  consume: () => read(`reader of ${given.topic} ${Math.random()}`),
  group: () => read(given.group),
  rebalance,
  transact,
  copy,
  admin,
  logins,
};
commands[command]().then(
  (answer) => {
    console.log(JSON.stringify(answer));
    process.exit(0);
  },
  (error) => {
    console.error(`kafkajs: ${error.stack}`);
    process.exit(1);
  },
);
