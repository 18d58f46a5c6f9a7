// Writes and reads a record over TLS with each login of a file, and prints the outcome of each: the record, or the error
// with which the broker rejected the login.
//
//   node logins.js FILE
//
// A line of the file is a login in JSON, as of tests/clients/go/logins.go.
'use strict';

const { readFileSync } = require('node:fs');
const { Kafka, logLevel } = require('kafkajs');

const VALUE = 'by KafkaJS';

function sasl(login) {
  switch (login.Mechanism) {
    case '':
      return undefined;
    case 'OAUTHBEARER':
      return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: login.Token }) };
    default:
      return { mechanism: login.Mechanism.toLowerCase(), username: login.User, password: login.Password };
  }
}

function client(login) {
  const keystore = login.Keystore === '' ? undefined : readFileSync(login.Keystore, 'utf8');
  return new Kafka({
    brokers: [login.Bootstrap],
    logLevel: logLevel.NOTHING,
    ssl: { ca: [readFileSync(login.Authorities, 'utf8')], key: keystore, cert: keystore },
    sasl: sasl(login),
    retry: { retries: 0 },
  });
}

async function exchange(login) {
  const kafka = client(login);
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: login.Topic, numPartitions: 1, replicationFactor: 1 }] });
  await admin.disconnect();
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: login.Topic, messages: [{ value: VALUE }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: login.Topic, retry: { retries: 10 } });
  await consumer.connect();
  await consumer.subscribe({ topic: login.Topic, fromBeginning: true });
  const value = await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject);
  });
  await consumer.disconnect();
  return value;
}

async function main() {
  for (const line of readFileSync(process.argv[2], 'utf8').trim().split('\n')) {
    const login = JSON.parse(line);
    const outcome = await exchange(login).catch((error) => `error: ${error.message.trim().replaceAll("\n", " ")}`);
    console.log(`${login.Name}: ${outcome}`);
  }
}

main();
