// What `adapter.py` and `counter.py` are for Python: the command line of an adapter, and the counter of its job bodies.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const PACKAGES = process.env.BENCH_NODE_FOLDER; // holds node_modules
const PAD = "x".repeat(Number(process.env.BENCH_PAD ?? 100));
const A_CALL = 1000;
const EPOCH_NS = BigInt(Date.now()) * 1_000_000n - process.hrtime.bigint();
const now = () => EPOCH_NS + process.hrtime.bigint();
const job = (n, t = "0") => ({ n, t, pad: PAD });

export const DSN = process.env.BENCH_DSN;
export const load = (name) => import(pathToFileURL(createRequire(`${PACKAGES}/package.json`).resolve(name)).href);
export const version = (name) =>
  `${name} ${JSON.parse(fs.readFileSync(`${PACKAGES}/node_modules/${name}/package.json`)).version} (node ${process.version})`;

// The counter: numbers are written every 10 ms, so that a job costs no system call.
const counts = { jobs: 0n, first: 0n, last: 0n };
let files = null;

function writeCounts() {
  const bytes = Buffer.alloc(24);
  [counts.jobs, counts.first, counts.last].forEach((number, place) => bytes.writeBigUInt64LE(number, 8 * place));
  fs.writeSync(files.counts, bytes, 0, 24, 0);
}

export function tick(sentNs) {
  const at = now();
  if (files === null) {
    const open = (kind) => fs.openSync(path.join(process.env.BENCH_RUN_DIR, `${process.pid}.${kind}`), "w");
    files = { counts: open("counts"), waits: open("waits") };
    counts.first = at;
    setInterval(writeCounts, 10).unref();
  }
  counts.jobs += 1n;
  counts.last = at;
  if (sentNs && sentNs !== "0") {
    const bytes = Buffer.alloc(8);
    const wait = at - BigInt(sentNs);
    bytes.writeBigUInt64LE(wait > 0n ? wait : 0n);
    fs.writeSync(files.waits, bytes);
  }
}

const VERBS = {
  async single(peer, count) {
    await peer.send(job(-1));
    const start = performance.now();
    for (let n = 0; n < count; n++) await peer.send(job(n));
    return performance.now() - start;
  },
  async bulk(peer, count) {
    const start = performance.now();
    for (let first = 0; first < count; first += A_CALL)
      await peer.sendMany(Array.from({ length: Math.min(A_CALL, count - first) }, (_, k) => job(first + k)));
    return performance.now() - start;
  },
  async paced(peer, count, everyMs) {
    const start = performance.now();
    for (let n = 0; n < count; n++) {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, start + n * everyMs - performance.now())));
      await peer.send(job(n, String(now())));
    }
    return performance.now() - start;
  },
};

export async function main(peer) {
  const [verb, ...numbers] = process.argv.slice(2);
  if (verb === "info") console.log(JSON.stringify({ version: peer.version, settings: peer.settings, unfinished: peer.unfinished }));
  else if (verb === "setup") await peer.setUp();
  else if (verb === "worker") return peer.work();
  else {
    await peer.open();
    console.log(JSON.stringify({ seconds: (await VERBS[verb](peer, ...numbers.map(Number))) / 1000 }));
    await peer.close();
  }
  process.exit(0);
}
