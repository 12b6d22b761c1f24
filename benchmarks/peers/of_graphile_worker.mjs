// graphile-worker: with its local queue (as its own performance page) or, with GRAPHILE_PLAIN=1, as it comes.
import { DSN, load, main, tick, version } from "./adapter.mjs";

const { Logger, makeWorkerUtils, run } = await load("graphile-worker");
const plain = process.env.GRAPHILE_PLAIN === "1";
const logger = new Logger(() => () => {});
const batching = plain
  ? { maxPoolSize: 26 }
  : { maxPoolSize: 10, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
let utils;

await main({
  version: version("graphile-worker"),
  settings: plain ? "concurrentJobs 24, no local queue" : "concurrentJobs 24, localQueue.size 500, completeJobBatchDelay 0",
  unfinished: "SELECT count(*) FROM graphile_worker._private_jobs",
  async setUp() {
    const once = await makeWorkerUtils({ connectionString: DSN, logger });
    await once.migrate();
    await once.release();
  },
  async open() {
    utils = await makeWorkerUtils({ connectionString: DSN, logger });
  },
  async close() {
    await utils.release();
  },
  async send(one) {
    await utils.addJob("tick", one);
  },
  async sendMany(many) {
    await utils.addJobs(many.map((payload) => ({ identifier: "tick", payload })));
  },
  async work() {
    const worker = { connectionString: DSN, logger, concurrentJobs: 24, pollInterval: 2000, ...batching };
    const runner = await run({ preset: { worker }, taskList: { tick: async (payload) => tick(payload.t) } });
    await runner.promise;
  },
});
