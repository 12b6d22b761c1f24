// pg-boss: batches of 500, told of new jobs by NOTIFY.
import { DSN, load, main, tick, version } from "./adapter.mjs";

const { PgBoss } = await load("pg-boss");
const BATCH = 500;
const QUEUE = "bench";

function boss(options) {
  const made = new PgBoss({ connectionString: DSN, ...options });
  made.on("error", (error) => console.error(error));
  return made;
}

let producer;

await main({
  version: version("pg-boss"),
  settings: `batchSize ${BATCH}, localConcurrency 2, burst mode, LISTEN/NOTIFY, keeps finished rows (its default)`,
  unfinished: `SELECT count(*) FROM pgboss.job WHERE name = '${QUEUE}' AND state < 'completed'`,
  async setUp() {
    const once = boss({ useListenNotify: true });
    await once.start();
    await once.createQueue(QUEUE, { notify: true });
    await once.stop({ graceful: false });
  },
  async open() {
    producer = boss({ supervise: false, schedule: false });
    await producer.start();
  },
  async close() {
    await producer.stop({ graceful: false });
  },
  async send(one) {
    await producer.send(QUEUE, one);
  },
  async sendMany(many) {
    await producer.insert(QUEUE, many.map((data) => ({ data })));
  },
  async work() {
    const worker = boss({ useListenNotify: true });
    await worker.start();
    const how = { batchSize: BATCH, localConcurrency: 2, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
    await worker.work(QUEUE, how, async (jobs) => {
      for (const job of jobs) tick(job.data.t);
    });
    await new Promise(() => {});
  },
});
