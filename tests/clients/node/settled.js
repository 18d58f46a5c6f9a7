// The topics in the metadata of one broker. A broker receives a topic, and its new partitions, a moment after the
// controller creates them, and the client chooses the broker: so each gets a Metadata request (version 4) over a
// connection of its own.
'use strict';

const { once } = require('node:events');
const net = require('node:net');

const METADATA = 3;
const VERSION = 4;

function request(names) {
  const head = Buffer.alloc(14);
  head.writeInt16BE(METADATA, 0);
  head.writeInt16BE(VERSION, 2);
  head.writeInt16BE(-1, 8); // no client id
  head.writeInt32BE(names.length, 10);
  const asked = names.map((name) => Buffer.concat([Buffer.from([name.length >> 8, name.length & 0xff]), Buffer.from(name)]));
  const body = Buffer.concat([head, ...asked, Buffer.from([0])]); // a request creates no topic
  const size = Buffer.alloc(4);
  size.writeInt32BE(body.length);
  return Buffer.concat([size, body]);
}

// How many partitions each topic has, in a response without its size.
function partitions(answer) {
  let at = 8; // correlation, throttle
  const int16 = () => answer.readInt16BE((at += 2) - 2);
  const int32 = () => answer.readInt32BE((at += 4) - 4);
  const text = () => {
    const length = int16();
    return length < 0 ? null : answer.toString('utf8', at, (at += length));
  };
  const each = (read) => Array.from({ length: int32() }, read);
  each(() => [int32(), text(), int32(), text()]); // brokers
  text(); // the cluster
  int32(); // the controller
  const topics = each(() => {
    at += 2; // error
    const name = text();
    at += 1; // internal
    return [name, each(() => {
      at += 10; // error, number, leader
      return [each(int32), each(int32)];
    }).length];
  });
  return Object.fromEntries(topics);
}

async function ask(socket, names) {
  socket.write(request(names));
  let received = Buffer.alloc(0);
  while (received.length < 4 || received.length < 4 + received.readInt32BE(0)) {
    const [chunk] = await once(socket, 'data');
    received = Buffer.concat([received, chunk]);
  }
  return partitions(received.subarray(4));
}

// Resolves when every broker has these topics with this many partitions.
async function settled(bootstrap, wanted, patienceMs) {
  const limit = Date.now() + patienceMs;
  for (const address of bootstrap.split(',')) {
    const [host, port] = address.split(':');
    const socket = net.connect(Number(port), host);
    await once(socket, 'connect');
    let known = {};
    while (!Object.entries(wanted).every(([name, count]) => known[name] === count)) {
      if (Date.now() > limit) throw new Error(`${address} does not hear of ${JSON.stringify(wanted)}`);
      known = await ask(socket, Object.keys(wanted));
    }
    socket.destroy();
  }
}

module.exports = { settled };
