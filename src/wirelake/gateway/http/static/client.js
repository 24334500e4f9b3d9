/**
 * A sisnet client for browsers. It requests, publishes, subscribes and provides services over a WebSocket.
 * No dependencies. Served by the gateway at /client.js:
 *
 *   import { SisnetClient } from "http://127.0.0.1:7080/client.js";
 *   const client = new SisnetClient({ user: "desk", token: "secret" });
 *   await client.open();
 *   await client.subscribe("@news", (notification) => console.log(notification.content));
 *   console.log(await client.ask("adder", "add", { numbers: [1, 2, 3] }));
 *
 * After a lost connection it reconnects by itself, with growing pauses, and restores its subscriptions and services.
 * Requests without an answer by then are rejected: only the caller knows whether to repeat them. Bytes are Uint8Arrays.
 *
 * @module
 */

/**
 * @typedef {object} Options
 * @property {string} [url] ws://HOST:PORT or wss://…; by default, the sisnet listener of the gateway that served this file
 * @property {string} user
 * @property {string} token
 * @property {number} [answerMs] how long to wait for an answer, including the wait for a connection
 * @property {number} [backoffFirstMs] the longest first pause before reconnecting; it doubles
 * @property {number} [backoffMaxMs]
 * @property {number} [pingMs] how often to ping; without data for three times as long, the client reconnects
 */

/**
 * @typedef {object} Notification
 * @property {string} topic
 * @property {string} id identifies a repeated notification; empty on a live topic
 * @property {number} type
 * @property {number} ts when it was published, milliseconds since 1970
 * @property {string | Uint8Array} content a Uint8Array if it is not text
 */

/**
 * @typedef {object} Request a request to a service that this client provides
 * @property {string} service
 * @property {string} op
 * @property {any} value
 */

/** @callback OnNotification @param {Notification} notification @returns {void} */
/** @callback OnPush @param {any} records @returns {void} */
/** @callback OnEnd @param {Error} error @returns {void} */
/** @callback Handler @param {Request} request @returns {any} a value, a Promise of one, or Packets */

const DEFAULTS = { answerMs: 30_000, backoffFirstMs: 200, backoffMaxMs: 30_000, pingMs: 40_000 };
const STEADY_MS = 10_000; // a connection that held this long makes the pauses short again
const OPEN_MAX = 256; // requests without an answer; the gateway takes no more
const PACKETS_MAX = 1024; // of one answer
const BUFFERED_BYTES_MAX = 16 * 1024 * 1024; // written and not taken by the network
const SILENT_PINGS = 3;
const GATEWAY = "wirelake";
const WILL_PASS = ["try again", "shutting down", "in time"]; // in the reason of a refused login
const ANS = { expired: -100, failed: -1, ok: 0, integer: 1, text: 2, list: 3, table: 4, object: 5, bytes: 6 };

/** The answer is a failure, or there is none. `code` is the gateway's number, or "lost", "late", "refused", "closed". */
export class SisnetError extends Error {
  /** @param {string} message @param {number | string} code */
  constructor(message, code) {
    super(message);
    this.name = "SisnetError";
    this.code = code;
  }
}

/** What a handler returns to answer in several packets. */
export class Packets {
  /** @param {any[]} values */
  constructor(values) {
    this.values = values;
  }
}

/**
 * Events: "open" after each login, "lost" when a connection ended or did not begin (detail: why), "refused" when the
 * gateway does not want us (detail: why), after which nothing more is tried.
 */
export class SisnetClient extends EventTarget {
  /** How many times it logged in. */
  connections = 0;
  /** Why the last connection ended, or did not begin. */
  trouble = "";

  #options;
  /** @type {WebSocket | null} */ #socket = null;
  #ready = false;
  /** @type {Error | null} */ #over = null;
  #started = false;
  #count = 0;
  #boundMs;
  #heardMs = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #retry;
  /** @type {ReturnType<typeof setInterval> | undefined} */ #pinging;
  /** @type {Set<{resolve: () => void, reject: (error: Error) => void}>} */ #waiting = new Set();
  /** @type {Map<string, {resolve: (value: any) => void, reject: (error: Error) => void, packets: any[]}>} */
  #asked = new Map();
  /** @type {Map<string, Set<OnNotification>>} */ #topics = new Map();
  /** @type {Map<string, {service: string, key: string, sdb: string, onPush: OnPush, onEnd?: OnEnd}>} */
  #feeds = new Map();
  /** @type {Map<string, Handler>} */ #services = new Map();

  /** @param {Options} options */
  constructor(options) {
    super();
    this.#options = { ...DEFAULTS, ...options };
    this.#boundMs = this.#options.backoffFirstMs;
  }

  /** Whether it is logged in at present. */
  get connected() {
    return this.#ready;
  }

  /**
   * Connects and logs in. Rejects where the gateway refuses that; otherwise it goes on trying.
   * @returns {Promise<void>}
   */
  open() {
    if (this.#over) return Promise.reject(this.#over);
    if (!this.#started) {
      this.#started = true;
      this.#call();
    }
    return this.#untilReady();
  }

  /** Ends it for good. */
  close() {
    this.#end(new SisnetError("the client is closed", "closed"));
  }

  /**
   * Asks a service, whatever protocol its provider speaks. An answer in several packets is joined.
   * @param {string} service
   * @param {string} command
   * @param {any} [ask] what JSON can hold, or a Uint8Array
   * @returns {Promise<any>} null, a number, a string, an array, an object or a Uint8Array
   */
  ask(service, command, ask) {
    return this.#request({ service, command, ...(ask === undefined || ask === null ? {} : { ask: asked(ask) }) });
  }

  /**
   * Publishes. For a durable topic (`@…`) it is on the gateway's disk when this resolves, with its id.
   * @param {string} topic
   * @param {string | Uint8Array} content
   * @param {{type?: number, retain?: boolean}} [more] retain: kept as the topic's last value
   * @returns {Promise<string>}
   */
  async publish(topic, content, more = {}) {
    const text = content instanceof Uint8Array ? { content: toBase64(content), encoding: "base64" } : { content };
    const answer = await this.#request({ service: GATEWAY, command: "publish", ask: { topic, ...text, ...more } });
    return answer?.id ?? "";
  }

  /**
   * Durable topics (`@…`) bring what was missed, live names what is published from now on.
   * @param {string} topic
   * @param {OnNotification} onNotification
   * @returns {Promise<void>}
   */
  async subscribe(topic, onNotification) {
    const known = this.#topics.get(topic);
    if (known) {
      known.add(onNotification);
      return;
    }
    this.#topics.set(topic, new Set([onNotification]));
    try {
      await this.#request(subscription(topic));
    } catch (error) {
      if (!(error instanceof SisnetError) || error.code !== "lost") this.#topics.delete(topic);
      throw error;
    }
  }

  /** @param {string} topic @returns {Promise<void>} */
  async unsubscribe(topic) {
    if (this.#topics.delete(topic)) await this.#request({ service: GATEWAY, command: "unsubscribe", ask: { topic } });
  }

  /**
   * New records of a data set, as it pushes them.
   * @param {string} key
   * @param {string} sdb
   * @param {OnPush} onPush
   * @param {{service?: string, onEnd?: OnEnd}} [more] onEnd: the service ended it, or could not begin it again
   * @returns {Promise<() => Promise<void>>} a function that calls it off
   */
  async sub(key, sdb, onPush, { service = "sisdb", onEnd } = {}) {
    const feed = { service, key, sdb, onPush, onEnd };
    const call = { service, command: "sub", ask: { key, sdb } };
    await this.#request(call, (name) => this.#feeds.set(name, feed));
    return async () => {
      const found = [...this.#feeds].find(([, each]) => each === feed);
      if (!found) return;
      this.#feeds.delete(found[0]);
      await this.#request({ ...call, command: "unsub" });
    };
  }

  /**
   * Provides a service, for askers of any protocol. A handler that throws answers with the error's message.
   * @param {string} service
   * @param {Handler} handler
   * @returns {Promise<void>}
   */
  async register(service, handler) {
    this.#services.set(service, handler);
    try {
      await this.#request({ service: GATEWAY, command: "register", ask: { service } });
    } catch (error) {
      if (!(error instanceof SisnetError) || error.code !== "lost") this.#services.delete(service);
      throw error;
    }
  }

  /** @param {string} service @returns {Promise<void>} */
  async unregister(service) {
    this.#services.delete(service);
    await this.#request({ service: GATEWAY, command: "unregister", ask: { service } });
  }

  /** Pings go out by themselves; this one is answered. @returns {Promise<void>} */
  async ping() {
    await this.#request({ service: GATEWAY, command: "ping" });
  }

  // Connecting

  async #call() {
    let url;
    try {
      url = this.#options.url ?? (await findGateway());
    } catch (error) {
      this.#lost(String(error));
      return;
    }
    if (this.#over) return;
    let socket;
    try {
      socket = new WebSocket(url);
    } catch (error) {
      this.#end(new SisnetError(String(error), "refused")); // such a url will not get better
      return;
    }
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    const begunMs = performance.now();
    let why = "no connection";
    socket.onopen = () => {
      why = "the connection was lost";
      this.#enter(socket).catch((error) => {
        if (refused(error)) this.#end(new SisnetError(error.message, "refused"));
        why = error.message;
        socket.close();
      });
    };
    socket.onmessage = (event) => this.#onData(event.data);
    socket.onclose = (event) => {
      if (socket !== this.#socket) return;
      if (performance.now() - begunMs >= STEADY_MS) this.#boundMs = this.#options.backoffFirstMs;
      this.#lost(event.reason || why);
    };
  }

  /** @param {WebSocket} socket */
  async #enter(socket) {
    const { user, token, pingMs } = this.#options;
    this.#heardMs = performance.now();
    this.#pinging = setInterval(() => this.#beat(socket), pingMs);
    try {
      await this.#say({ command: "login", ask: { name: user, password: token } });
    } catch (error) {
      throw error instanceof SisnetError && typeof error.code === "number" ? new LoginError(error.message) : error;
    }
    await this.#restore();
    this.connections += 1;
    this.#ready = true;
    for (const each of this.#waiting) each.resolve();
    this.#waiting.clear();
    this.dispatchEvent(new CustomEvent("open"));
  }

  /** What was there before. */
  async #restore() {
    for (const service of [...this.#services.keys()]) {
      await this.#say({ service: GATEWAY, command: "register", ask: { service } });
    }
    if (this.#topics.size) await this.#say(subscription([...this.#topics.keys()]));
    for (const [before, feed] of [...this.#feeds]) await this.#again(before, feed);
  }

  /**
   * @param {string} before its name on the last connection
   * @param {{service: string, key: string, sdb: string, onPush: OnPush, onEnd?: OnEnd}} feed
   */
  async #again(before, feed) {
    const call = { service: feed.service, command: "sub", ask: { key: feed.key, sdb: feed.sdb } };
    let name = before;
    try {
      await this.#say(call, (given) => {
        this.#feeds.delete(before);
        this.#feeds.set((name = given), feed);
      });
    } catch (error) {
      if (error instanceof SisnetError && error.code === "lost") throw error; // it stays, for the next connection
      this.#feeds.delete(name);
      feed.onEnd?.(/** @type {Error} */ (error));
    }
  }

  /** @param {WebSocket} socket */
  #beat(socket) {
    if (performance.now() - this.#heardMs > SILENT_PINGS * this.#options.pingMs) {
      socket.onclose = socket.onmessage = null;
      socket.close();
      this.#lost("no data received");
    } else if (this.#ready) {
      this.#say({ service: GATEWAY, command: "ping" }).catch(() => {}); // a lost connection tells of itself
    }
  }

  /** @param {string} why */
  #lost(why) {
    this.#socket = null;
    this.#ready = false;
    this.trouble = why;
    clearInterval(this.#pinging);
    const error = new SisnetError(`the connection was lost: ${why}`, "lost");
    for (const each of this.#asked.values()) each.reject(error);
    this.#asked.clear();
    if (this.#over) return;
    const pauseMs = Math.random() * this.#boundMs; // full jitter: those who were lost together do not come together
    this.#boundMs = Math.min(this.#boundMs * 2, this.#options.backoffMaxMs);
    this.#retry = setTimeout(() => this.#call(), pauseMs);
    this.dispatchEvent(new CustomEvent("lost", { detail: why }));
  }

  /** @param {SisnetError} error */
  #end(error) {
    if (this.#over) return;
    this.#over = error;
    this.#ready = false;
    clearTimeout(this.#retry);
    clearInterval(this.#pinging);
    for (const each of [...this.#waiting, ...this.#asked.values()]) each.reject(error);
    this.#waiting.clear();
    this.#asked.clear();
    this.#socket?.close(1000);
    if (error.code === "refused") this.dispatchEvent(new CustomEvent("refused", { detail: error.message }));
  }

  /** @returns {Promise<void>} */
  #untilReady() {
    if (this.#ready) return Promise.resolve();
    if (this.#over) return Promise.reject(this.#over);
    if (!this.#started) return Promise.reject(new SisnetError("the client is not open yet", "closed"));
    return new Promise((resolve, reject) => this.#waiting.add({ resolve, reject }));
  }

  // Asking

  /**
   * @param {object} values
   * @param {(name: string) => void} [named]
   * @returns {Promise<any>}
   */
  #request(values, named) {
    const { answerMs } = this.#options;
    let name = "";
    let over = false;
    const work = this.#untilReady().then(() => {
      if (over) return null; // nobody waits any more
      return this.#say(values, (given) => {
        name = given;
        named?.(given);
      });
    });
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        over = true;
        this.#asked.delete(name);
        this.#feeds.delete(name);
        reject(new SisnetError(`no answer within ${answerMs} ms`, "late"));
      }, answerMs);
      work
        .then(resolve, (error) => {
          this.#feeds.delete(name);
          reject(error);
        })
        .finally(() => clearTimeout(late));
    });
  }

  /**
   * Pushes may come right behind the answer, so `named` is told the name before anything is sent.
   * @param {object} values
   * @param {(name: string) => void} [named]
   * @returns {Promise<any>}
   */
  #say(values, named) {
    const socket = this.#socket;
    if (!socket || socket.readyState !== WebSocket.OPEN) {
      return Promise.reject(new SisnetError("the connection was lost", "lost"));
    }
    if (this.#asked.size >= OPEN_MAX) {
      return Promise.reject(new SisnetError(`${OPEN_MAX} requests wait for their answers already`, "late"));
    }
    if (socket.bufferedAmount > BUFFERED_BYTES_MAX) {
      return Promise.reject(new SisnetError("the network does not take what was sent before", "late"));
    }
    const name = String(++this.#count);
    const text = JSON.stringify(values);
    named?.(name);
    return new Promise((resolve, reject) => {
      this.#asked.set(name, { resolve, reject, packets: [] });
      socket.send(`${name}:${text}`);
    });
  }

  // Hearing

  /** @param {string | ArrayBuffer} data */
  #onData(data) {
    this.#heardMs = performance.now();
    const text = typeof data === "string" ? data : new TextDecoder().decode(data);
    const colon = text.indexOf(":");
    let values;
    try {
      values = JSON.parse(text.slice(colon + 1));
    } catch {
      return; // none of the forms that we ask for
    }
    const name = text.slice(0, colon);
    if (typeof values !== "object" || values === null) return;
    if (!("ans" in values) && ("command" in values || "ask" in values)) {
      this.#serve(name, values);
    } else if (values.command === "publish" && typeof values.msg?.topic === "string") {
      this.#notify(values.msg);
    } else if (this.#asked.has(name)) {
      this.#answered(name, values);
    } else if (this.#feeds.has(name)) {
      this.#pushed(name, values);
    }
  }

  /** @param {string} name @param {any} values */
  #answered(name, values) {
    const asked = /** @type {NonNullable<ReturnType<typeof this.#asked.get>>} */ (this.#asked.get(name));
    if (values.ans < 0) {
      this.#asked.delete(name);
      asked.reject(failure(values));
      return;
    }
    asked.packets.push(valueOf(values));
    if (!(values.fuc > 0)) {
      this.#asked.delete(name);
      asked.resolve(joined(asked.packets));
    } else if (asked.packets.length >= PACKETS_MAX) {
      this.#asked.delete(name);
      asked.reject(new SisnetError(`the answer has more than ${PACKETS_MAX} packets`, "late"));
    }
  }

  /** @param {string} name @param {any} values */
  #pushed(name, values) {
    const feed = this.#feeds.get(name);
    if (!feed) return;
    if (values.ans < 0) {
      this.#feeds.delete(name);
      feed.onEnd?.(failure(values));
    } else {
      guarded(() => feed.onPush(valueOf(values)));
    }
  }

  /** @param {any} msg */
  #notify(msg) {
    const content = msg.encoding === "base64" ? fromBase64(msg.content) : msg.content;
    const notification = { topic: msg.topic, id: msg.id ?? "", type: msg.type ?? 0, ts: msg.ts ?? 0, content };
    for (const each of this.#topics.get(msg.topic) ?? []) guarded(() => each(notification));
  }

  /** @param {string} name @param {any} values */
  async #serve(name, values) {
    const socket = this.#socket;
    const service = values.service ?? "sisdb";
    const handler = this.#services.get(service);
    let answers;
    try {
      if (!handler) throw new SisnetError("not served here", ANS.failed);
      const value = values.ask === undefined ? null : askedValue(values.ask);
      const found = await handler({ service, op: values.command ?? "", value });
      answers = (found instanceof Packets && found.values.length ? found.values : [plain(found)]).map(answerOf);
    } catch (error) {
      answers = [{ ans: ANS.failed, msg: error instanceof Error ? error.message : String(error) }];
    }
    if (!name || socket?.readyState !== WebSocket.OPEN) return; // an event, or nobody waits any more
    answers.forEach((answer, place) => {
      const fuc = answers.length - place - 1;
      socket.send(`${name}:${JSON.stringify(fuc ? { ...answer, fuc } : answer)}`);
    });
  }
}

/** The login itself was answered with a failure. */
class LoginError extends SisnetError {
  /** @param {string} message */
  constructor(message) {
    super(message, "refused");
  }
}

/** @param {unknown} error @returns {boolean} whether calling again would not help */
function refused(error) {
  return error instanceof LoginError && !WILL_PASS.some((words) => error.message.includes(words));
}

/** @returns {Promise<string>} where the gateway that served this file has its WebSocket listener */
async function findGateway() {
  const here = new URL(import.meta.url);
  const { listeners } = await (await fetch(new URL("/readyz", here), { cache: "no-store" })).json();
  if (!listeners?.sisnet) throw new Error(listeners ? "the gateway has no sisnet listener" : "the gateway is not ready");
  const port = listeners.sisnet.slice(listeners.sisnet.lastIndexOf(":") + 1);
  return `${here.protocol === "https:" ? "wss" : "ws"}://${here.hostname}:${port}`;
}

/** @param {string | string[]} topic */
function subscription(topic) {
  return { service: GATEWAY, command: "subscribe", ask: { topic } };
}

/** @param {any} values @returns {SisnetError} */
function failure(values) {
  return new SisnetError(String(values.msg ?? "failed"), Number(values.ans));
}

/** @param {any} found */
function plain(found) {
  return found instanceof Packets ? null : found;
}

/** A request's `ask` for a value. @param {any} value */
function asked(value) {
  return value instanceof Uint8Array ? { payload: toBase64(value) } : value;
}

/** The other way round. @param {any} ask */
function askedValue(ask) {
  const bare = typeof ask === "object" && ask !== null && Object.keys(ask).length === 1 && typeof ask.payload === "string";
  return bare ? fromBase64(ask.payload) : ask;
}

/** @param {any} values an answer @returns {any} what it holds */
function valueOf(values) {
  if (Array.isArray(values)) return values;
  const { ans, msg } = values;
  if (ans === ANS.bytes) return fromBase64(msg);
  if (msg === undefined) return ans === undefined ? values : null;
  const alone = typeof msg === "object" && msg !== null && !Array.isArray(msg) && Object.keys(msg).length === 1;
  return alone && "msg" in msg ? msg.msg : msg;
}

/** @param {any} value @returns {{ans: number, msg?: any}} an answer that holds it */
function answerOf(value) {
  if (value === undefined || value === null) return { ans: ANS.ok };
  if (value instanceof Uint8Array) return { ans: ANS.bytes, msg: toBase64(value) };
  if (typeof value === "string") return { ans: ANS.text, msg: value };
  if (Number.isSafeInteger(value)) return { ans: ANS.integer, msg: value };
  if (Array.isArray(value)) {
    return { ans: value.length && value.every(Array.isArray) ? ANS.table : ANS.list, msg: value };
  }
  return { ans: ANS.object, msg: typeof value === "object" ? value : { msg: value } };
}

/** @param {any[]} packets @returns {any} arrays, strings and bytes put together; anything else as an array */
function joined(packets) {
  if (packets.length === 1) return packets[0];
  if (packets.every(Array.isArray)) return packets.flat(1);
  if (packets.every((each) => typeof each === "string")) return packets.join("");
  if (packets.every((each) => each instanceof Uint8Array)) {
    const whole = new Uint8Array(packets.reduce((size, each) => size + each.length, 0));
    let end = 0;
    for (const each of packets) {
      whole.set(each, end);
      end += each.length;
    }
    return whole;
  }
  return packets;
}

/** A fault of one listener must not keep the others from hearing. @param {() => void} call */
function guarded(call) {
  try {
    call();
  } catch (error) {
    reportError(error);
  }
}

/** @param {Uint8Array} bytes @returns {string} */
export function toBase64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}

/** @param {string} text @returns {Uint8Array} */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
