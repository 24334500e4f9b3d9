// The calls that applications make most with ioredis.
// node ioredis.mjs HOST PORT USER TOKEN
import assert from "node:assert/strict";
import { Redis } from "ioredis";

const [host, port, username, password] = process.argv.slice(2);
const options = { host, port: Number(port), username, password, retryStrategy: null, maxRetriesPerRequest: 0 };
const connect = () => new Redis(options).on("error", fail);
const client = connect();
const other = connect();

function fail(error) {
  console.error(error);
  process.exit(1);
}

// Strings
assert.equal(await client.ping(), "PONG");
assert.equal(await client.set("k", "v", "EX", 100), "OK");
assert.equal(await client.get("k"), "v");
assert.equal(await client.get("none"), null);
assert.deepEqual(await client.getBuffer("k"), Buffer.from("v"));
assert.equal(await client.setex("soon", 100, "over"), "OK");
assert.equal(await client.psetex("sooner", 100_000, "over"), "OK");
assert.equal(await client.persist("soon"), 1);
assert.equal(await client.ttl("soon"), -1);
assert.equal(await client.mset("a", "1", "b", "2"), "OK");
assert.deepEqual(await client.mget("a", "b", "none"), ["1", "2", null]);
assert.equal(await client.incr("a"), 2);
assert.equal(await client.incrby("a", 10), 12);
assert.equal(await client.decr("a"), 11);
assert.equal(await client.decrby("a", 5), 6);
assert.equal(await client.append("k", "!"), 2);
assert.equal(await client.strlen("k"), 2);
assert.equal(await client.getset("k", "new"), "v!");
assert.equal(await client.getdel("k"), "new");
assert.equal(await client.exists("k", "a"), 1);

// Keys
assert.equal(await client.type("a"), "string");
assert.equal(await client.dbsize(), 4);
const scanned = [];
for await (const keys of client.scanStream({ match: "soon*", count: 1 })) scanned.push(...keys);
assert.deepEqual(scanned.sort(), ["soon", "sooner"]);
assert.equal(await client.del("soon", "sooner"), 2);
await assert.rejects(client.flushdb(), /NOPERM/);
await assert.rejects(client.lpush("l", "x"), /ERR unknown command/);

// Hashes
assert.equal(await client.hset("h", { f: "1", g: "2" }), 2);
assert.equal(await client.hget("h", "f"), "1");
assert.deepEqual({ ...(await client.hgetall("h")) }, { f: "1", g: "2" });
assert.deepEqual(await client.hmget("h", "g", "none"), ["2", null]);
assert.equal(await client.hdel("h", "f"), 1);
assert.equal(await client.type("h"), "hash");
await assert.rejects(client.get("h"), /WRONGTYPE/);

// Pipelines and transactions
assert.deepEqual(await client.pipeline().set("p", "1").incr("p").get("p").exec(), [
  [null, "OK"],
  [null, 2],
  [null, "2"],
]);
const results = await client.multi().set("t", "1").incr("t").incr("h").hgetall("h").exec();
assert.deepEqual([results[0][1], results[1][1], { ...results[3][1] }], ["OK", 2, { g: "2" }]);
assert.match(results[2][0].message, /WRONGTYPE/);
await client.watch("t");
await other.set("t", "changed");
assert.equal(await client.multi().set("t", "mine").exec(), null);
assert.equal(await client.get("t"), "changed");

// Streams
const first = await client.xadd("@stream", "*", "title", "hello", "by", "ann");
const second = await client.xadd("@stream", "*", "title", "again");
assert.deepEqual(await client.xrange("@stream", "-", "+"), [
  [first, ["title", "hello", "by", "ann"]],
  [second, ["title", "again"]],
]);
assert.equal((await client.xrange("@stream", "-", "+", "COUNT", 1)).length, 1);
assert.match(JSON.stringify(await client.xread("COUNT", 10, "STREAMS", "@stream", first)), /again/);
assert.equal(await client.xread("STREAMS", "@stream", "$"), null);
const waiting = client.xread("BLOCK", 60_000, "STREAMS", "@stream", second);
await other.xadd("@stream", "*", "title", "at last");
assert.match(JSON.stringify(await waiting), /at last/);

// Subscriptions
const heard = [];
const subscriber = connect();
await subscriber.subscribe("live", "@durable");
const told = new Promise((resolve) => {
  subscriber.on("message", (topic, content) => heard.push(`${topic}: ${content}`) === 2 && resolve());
});
assert.equal(await client.publish("live", "one"), 1);
await client.publish("@durable", "two");
await told;
assert.deepEqual(heard.sort(), ["@durable: two", "live: one"]);

// The connection
assert.equal(await client.client("SETNAME", "shop"), "OK");
assert.match(await client.client("INFO"), /name=shop/);
assert.match(await client.client("LIST"), /name=shop/);
assert.match(await client.info(), /redis_mode:standalone/);

for (const each of [client, other, subscriber]) each.disconnect();
console.log("ioredis: done");
process.exit(0);
