// The calls that applications make most with node-redis, in both versions of RESP.
// node node_redis.mjs HOST PORT USER TOKEN VERSION
import assert from "node:assert/strict";
import { createClient, WatchError } from "redis";

const [host, port, username, password, version] = process.argv.slice(2);
const options = { username, password, RESP: Number(version), socket: { host, port: Number(port), reconnectStrategy: false } };
const client = await createClient(options).on("error", fail).connect();
const other = await createClient(options).on("error", fail).connect();

function fail(error) {
  console.error(error);
  process.exit(1);
}

// Strings
assert.equal(await client.ping(), "PONG");
assert.equal(await client.set("k", "v"), "OK");
assert.equal(await client.get("k"), "v");
assert.equal(await client.get("none"), null);
assert.equal(await client.set("k", "w", { condition: "NX" }), null);
assert.equal(await client.setEx("soon", 100, "over"), "OK");
assert.equal(await client.pSetEx("sooner", 100_000, "over"), "OK");
assert.ok((await client.ttl("soon")) > 90);
assert.equal(await client.persist("soon"), 1);
assert.equal(await client.ttl("soon"), -1);
assert.equal(await client.mSet({ a: "1", b: "2" }), "OK");
assert.deepEqual(await client.mGet(["a", "b", "none"]), ["1", "2", null]);
assert.equal(await client.incr("a"), 2);
assert.equal(await client.incrBy("a", 10), 12);
assert.equal(await client.decr("a"), 11);
assert.equal(await client.decrBy("a", 5), 6);
assert.equal(await client.append("k", "!"), 2);
assert.equal(await client.strLen("k"), 2);
assert.equal(await client.getSet("k", "new"), "v!");
assert.equal(await client.getDel("k"), "new");
assert.equal(await client.exists(["k", "a"]), 1);

// Keys
assert.equal(await client.type("a"), "string");
assert.equal(await client.dbSize(), 4);
assert.deepEqual((await client.keys("soon*")).sort(), ["soon", "sooner"]);
const scanned = [];
for await (const keys of client.scanIterator({ MATCH: "soon*", COUNT: 1 })) scanned.push(...keys);
assert.deepEqual(scanned.sort(), ["soon", "sooner"]);
assert.equal(await client.expire("a", 100), 1);
assert.equal(await client.del(["soon", "sooner"]), 2);
await assert.rejects(client.flushDb(), /NOPERM/);
await assert.rejects(client.sendCommand(["LPUSH", "l", "x"]), /ERR unknown command/);

// Hashes
assert.equal(await client.hSet("h", { f: "1", g: "2" }), 2);
assert.equal(await client.hGet("h", "f"), "1");
assert.deepEqual({ ...(await client.hGetAll("h")) }, { f: "1", g: "2" });
assert.deepEqual(await client.hmGet("h", ["g", "none"]), ["2", null]);
assert.equal(await client.hDel("h", "f"), 1);
assert.equal(await client.type("h"), "hash");
await assert.rejects(client.get("h"), /WRONGTYPE/);

// Transactions
const results = await client.multi().set("t", "1").incr("t").hGetAll("h").get("none").exec();
assert.equal(JSON.stringify(results), '["OK",2,{"g":"2"},null]');
await assert.rejects(client.multi().incr("h").exec());
await client.watch("t");
await other.set("t", "changed");
await assert.rejects(client.multi().set("t", "mine").exec(), WatchError);
assert.equal(await client.get("t"), "changed");

// Streams
const first = await client.xAdd("@stream", "*", { title: "hello", by: "ann" });
await client.xAdd("@stream", "*", { title: "again" });
const entries = await client.xRange("@stream", "-", "+");
assert.deepEqual(entries.map((entry) => ({ ...entry.message })), [{ title: "hello", by: "ann" }, { title: "again" }]);
assert.equal(entries[0].id, first);
assert.equal((await client.xRange("@stream", "-", "+", { COUNT: 1 })).length, 1);
const read = await client.xRead({ key: "@stream", id: first }, { COUNT: 10 });
assert.match(JSON.stringify(read), /again/);
assert.equal(await client.xRead({ key: "@stream", id: "$" }), null);
const waiting = client.xRead({ key: "@stream", id: "$" }, { BLOCK: 60_000 });
await other.xAdd("@stream", "*", { title: "at last" });
const awaited = JSON.stringify(await Promise.race([waiting, again(other)]));
assert.match(awaited, /at last/);

async function again(publisher) {
  // The reader may have begun to wait after the first one.
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    await publisher.xAdd("@stream", "*", { title: "at last" });
  }
}

// Subscriptions
const heard = [];
const subscriber = await createClient(options).on("error", fail).connect();
await new Promise(async (resolve) => {
  const listen = (content, topic) => heard.push(`${topic}: ${content}`) === 2 && resolve();
  await subscriber.subscribe("live", listen);
  await subscriber.subscribe("@durable", listen);
  assert.equal(await client.publish("live", "one"), 1);
  await client.publish("@durable", "two");
});
assert.deepEqual(heard.sort(), ["@durable: two", "live: one"]);

// The connection
assert.equal(await client.clientSetName("shop"), "OK");
assert.equal((await client.clientInfo()).name, "shop");
assert.equal((await client.clientList()).length, 1);
assert.match(await client.info(), /redis_mode:standalone/);

for (const each of [client, other, subscriber]) each.destroy();
console.log("node-redis: done");
process.exit(0);
