// Walks through the features of KafkaJS and prints the results: topics, gzip, headers, a group with two members,
// transactions with offsets, and its admin client.
//
//   node kafkajs.js BOOTSTRAP STEM REPLICATION
//
// A line of the output is one fact. Values that differ from run to run (names, ids, times) are left out or printed
// relative to the request, so that two brokers that do the same get the same text. Snappy, lz4 and zstd are plugins of others.
'use strict';

const { createHash } = require('node:crypto');
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs');
const { settled } = require('./settled.js');

const [bootstrap, stem, replication] = process.argv.slice(2);
const PARTITIONS = 4;
const PER_CODEC = 20;
const PATIENCE_MS = 150_000; // however slow the machine
const begun = Math.floor(Date.now() / 1000) * 1000 - 3_600_000;

const kafka = new Kafka({
  clientId: 'walk',
  brokers: bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  connectionTimeout: PATIENCE_MS,
  requestTimeout: PATIENCE_MS,
  retry: { initialRetryTime: 50, retries: 20 },
});
const topic = (name) => `${stem}-${name}`;
const say = (line) => console.log(line.replaceAll(stem, 'STEM'));

async function refused(what, promise) {
  const error = await promise.then(() => null, (failure) => failure);
  const first = error?.errors?.[0] ?? error;
  say(`${what}: ${first === null ? 'NONE' : first.type ?? first.name}`);
}

// Resolves when `holds` is true; the function that `watch` returns evaluates it again.
function condition(what, holds) {
  let check;
  const met = new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`${what}: not in time`)), PATIENCE_MS);
    check = () => {
      if (holds()) {
        clearTimeout(limit);
        resolve();
      }
    };
  });
  check();
  return { met, check };
}

async function topics(admin) {
  const spec = (name, numPartitions) => ({ topic: topic(name), numPartitions, replicationFactor: Number(replication) });
  const made = await admin.createTopics({
    waitForLeaders: true,
    timeout: PATIENCE_MS,
    topics: [
      { ...spec('codecs', 2), configEntries: [{ name: 'retention.ms', value: '86400000' }] },
      spec('copy', 1),
    ],
  });
  say(`created: ${made}`);
  say(`created again: ${await admin.createTopics({ topics: [spec('codecs', 2)] })}`);
  const dry = { validateOnly: true, waitForLeaders: false, topics: [spec('dry', 2)] };
  say(`validated: ${await admin.createTopics(dry)}`);
  await refused('no partitions', admin.createTopics({ topics: [spec('none', 0)] }));
  const more = [{ topic: topic('codecs'), count: PARTITIONS }];
  await admin.createPartitions({ topicPartitions: more, timeout: PATIENCE_MS });
  await refused('fewer partitions', admin.createPartitions({ topicPartitions: [{ topic: topic('codecs'), count: 3 }] }));
  await settled(bootstrap, { [topic('codecs')]: PARTITIONS, [topic('copy')]: 1 }, PATIENCE_MS);
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic('copy') };
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ ...resource, configEntries: [{ name: 'segment.bytes', value: '1000000' }] }],
  });
  const described = await admin.describeConfigs({
    includeSynonyms: true,
    resources: [{ ...resource, configNames: ['segment.bytes', 'retention.ms'] }],
  });
  const entries = described.resources[0].configEntries.sort((a, b) => a.configName.localeCompare(b.configName));
  for (const entry of entries) {
    say(`config ${entry.configName}=${entry.configValue} source ${entry.configSource}, ` +
      `${entry.configSynonyms.length} synonyms`);
  }
  const { topics: known } = await admin.fetchTopicMetadata({ topics: [topic('codecs')] });
  say(`${known[0].name} has ${known[0].partitions.length} partitions`);
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  let number = 0;
  for (const [name, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]]) {
    const messages = [];
    for (let i = 0; i < PER_CODEC; i += 1, number += 1) {
      messages.push({
        partition: i % PARTITIONS,
        key: `key ${number}`,
        value: number % 7 ? `${name} `.repeat(50) : null,
        timestamp: String(begun + 1000 * number),
        headers: { codec: name, number: String(number) },
      });
    }
    const answers = await producer.send({ topic: topic('codecs'), acks: -1, compression, messages });
    const placed = answers.map((answer) => `${answer.partition}@${answer.baseOffset}`).sort();
    say(`${name}: ${placed} ${answers.map((answer) => answer.errorCode)}`);
  }
  await producer.disconnect();
  return number;
}

const line = (message) =>
  `${message.offset} ${message.timestamp - begun} ${message.key} ${message.value} ` +
  Object.entries(message.headers).map(([key, value]) => `${key}=${value}`);

// A group of one member, then of two, then of one.
async function group(admin, total) {
  const read = Array.from({ length: PARTITIONS }, () => []);
  const held = [0, 0];
  const conditions = [];
  const await_ = (what, holds) => {
    const one = condition(what, holds);
    conditions.push(one);
    return one.met;
  };
  const changed = () => conditions.forEach((one) => one.check());
  const join = async (member) => {
    const consumer = kafka.consumer({
      groupId: topic('group'), heartbeatInterval: 200, sessionTimeout: 30_000, maxWaitTimeInMs: 100,
    });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      held[member] = (payload.memberAssignment[topic('codecs')] ?? []).length;
      changed();
    });
    await consumer.connect();
    await consumer.subscribe({ topic: topic('codecs'), fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        read[partition].push(line(message));
        changed();
      },
    });
    return consumer;
  };
  const count = () => read.reduce((sum, lines) => sum + lines.length, 0);
  const describe = async (when) => {
    const { groups: [one] } = await admin.describeGroups([topic('group')]);
    say(`${when}: ${one.state} ${one.protocolType} ${one.protocol} with ${one.members.length} members`);
  };

  const first = await join(0);
  await await_('reading', () => count() === total);
  read.forEach((lines, partition) => {
    say(`read of ${partition}: ${lines.length}, ${createHash('md5').update(lines.join('\n')).digest('hex')}`);
  });
  const second = await join(1);
  await await_('sharing', () => held[0] === 2 && held[1] === 2);
  await describe('two members');
  await second.disconnect();
  await await_('inheriting', () => held[0] === PARTITIONS);
  await first.disconnect();
  say(`read in all: ${count()}`);
  await describe('nobody');
  await groupOffsets(admin);
}

async function groupOffsets(admin) {
  const show = async (what) => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: topic('group'), topics: [topic('codecs')] });
    const offsets = partitions.sort((a, b) => a.partition - b.partition);
    say(`${what}: ${offsets.map((one) => `${one.partition}@${one.offset} ${one.metadata}`)}`);
  };
  await show('committed');
  await admin.setOffsets({ groupId: topic('group'), topic: topic('codecs'), partitions: [{ partition: 1, offset: '4' }] });
  await show('set');
  await admin.resetOffsets({ groupId: topic('group'), topic: topic('codecs'), earliest: true });
  await show('reset');
  const { groups } = await admin.listGroups();
  say(`listed: ${groups.find((one) => one.groupId === topic('group')).protocolType}`);
  await admin.deleteGroups([topic('group')]);
  await refused('deleted again', admin.deleteGroups([topic('group')])
    .catch((error) => Promise.reject(error.groups?.[0]?.error ?? error)));
}

async function transactions(admin) {
  const producer = kafka.producer({
    transactionalId: topic('transactional'), idempotent: true, maxInFlightRequests: 1, transactionTimeout: PATIENCE_MS,
  });
  await producer.connect();
  for (const [number, end] of ['commit', 'abort', 'commit'].entries()) {
    const transaction = await producer.transaction();
    const [answer] = await transaction.send({
      topic: topic('copy'), messages: [{ value: `${end} ${number}`, partition: 0 }],
    });
    await transaction.sendOffsets({
      consumerGroupId: topic('copiers'),
      topics: [{ topic: topic('codecs'), partitions: [{ partition: 0, offset: String(number + 3) }] }],
    });
    await transaction[end]();
    say(`transaction ${number}: ${end} from ${answer.baseOffset}`);
  }
  await producer.disconnect();
  for (const readUncommitted of [false, true]) {
    await readCopy(readUncommitted);
  }
  const committed = async () => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: topic('copiers'), topics: [topic('codecs')] });
    return partitions.find((one) => one.partition === 0).offset;
  };
  // The group has the offset of the first until its coordinator has received the last one's marker.
  const limit = Date.now() + PATIENCE_MS;
  let offset = await committed();
  while (offset === '3' && Date.now() < limit) offset = await committed();
  say(`offset in the transactions: ${offset}`);
}

async function readCopy(readUncommitted) {
  const consumer = kafka.consumer({ groupId: topic(`readers-${readUncommitted}`), readUncommitted, maxWaitTimeInMs: 100 });
  const read = [];
  const whole = condition('reading the copy', () => read.at(-1)?.endsWith('commit 2'));
  await consumer.connect();
  await consumer.subscribe({ topic: topic('copy'), fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      read.push(`${message.offset} ${message.value}`);
      whole.check();
    },
  });
  await whole.met;
  await consumer.disconnect();
  say(`${readUncommitted ? 'everything' : 'committed'}: ${read}`);
}

async function offsets(admin) {
  const show = (what, found) =>
    say(`${what}: ${found.sort((a, b) => a.partition - b.partition).map((one) => `${one.partition}@${one.offset}`)}`);
  await admin.deleteTopicRecords({ topic: topic('codecs'), partitions: [{ partition: 1, offset: '2' }] });
  const ends = await admin.fetchTopicOffsets(topic('codecs'));
  show('low', ends.map(({ partition, low }) => ({ partition, offset: low })));
  show('high', ends.map(({ partition, high }) => ({ partition, offset: high })));
  show('at 30 s', await admin.fetchTopicOffsetsByTimestamp(topic('codecs'), begun + 30_000));
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await topics(admin);
  const total = await produce();
  await group(admin, total);
  await offsets(admin);
  await transactions(admin);
  const { brokers, controller } = await admin.describeCluster();
  say(`the controller is a broker: ${brokers.some((broker) => broker.nodeId === controller)}`);
  await admin.deleteTopics({ topics: [topic('codecs'), topic('copy')], timeout: PATIENCE_MS });
  await settled(bootstrap, { [topic('codecs')]: 0, [topic('copy')]: 0 }, PATIENCE_MS);
  const left = await admin.listTopics();
  say(`left: ${left.filter((name) => name.startsWith(stem))}`);
  await admin.disconnect();
}

main().catch((error) => {
  console.log(`failed: ${error.stack}`);
  process.exit(1);
});
