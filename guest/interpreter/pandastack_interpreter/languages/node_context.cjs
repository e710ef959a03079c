'use strict';
// Runs cells in Node.js. Evaluation is the inspector's, as in its REPL: top-level await, and declarations that a later cell may repeat.
// Requests are read in a worker, which can also end a loop in the main thread; reports go to a pipe, each ended by NUL.

const fs = require('node:fs');
const inspector = require('node:inspector');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

// Shared between the threads: interrupts asked for, and the number of those that the main thread has seen.
const ASKED = 0;
const SEEN = 1;
// After an interrupt, for the main thread to see it; then it is in a loop.
const PATIENCE_MS = 100;

if (isMainThread) {
  startMainThread();
} else {
  serveRequests(workerData);
}

function serveRequests({ requests, interrupts }) {
  const net = require('node:net');
  const session = new inspector.Session();
  session.connectToMainThread();
  const interrupt = () => {
    const number = Atomics.add(interrupts, ASKED, 1) + 1;
    parentPort.postMessage({ op: 'interrupt', number });
    setTimeout(() => {
      if (Atomics.load(interrupts, SEEN) < number) session.post('Runtime.terminateExecution');
    }, PATIENCE_MS);
  };
  let unread = [];
  const input = new net.Socket({ fd: requests, readable: true, writable: false });
  input.on('data', (chunk) => {
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10)) {
      const message = JSON.parse(Buffer.concat([...unread, chunk.subarray(0, end)]).toString());
      unread = [];
      chunk = chunk.subarray(end + 1);
      if (message.op === 'interrupt') interrupt();
      else parentPort.postMessage(message);
    }
    if (chunk.length > 0) unread.push(chunk);
  });
  input.on('end', () => parentPort.postMessage({ op: 'close' }));
}

function startMainThread() {
  const [requests, reports] = process.argv.slice(2).map(Number);
  const { Cells } = require('./node_cells.cjs');
  const random = require('./node_random.cjs');
  const interrupts = new Int32Array(new SharedArrayBuffer(8));
  const cells = new Cells(reports);
  const exit = process.reallyExit.bind(process);
  const worker = new Worker(__filename, { workerData: { requests, interrupts }, argv: [], execArgv: [] });
  worker.on('message', (message) => {
    if (message.op === 'interrupt') {
      Atomics.store(interrupts, SEEN, message.number);
      cells.interrupt();
    } else if (message.op === 'run') {
      cells.run(message);
    } else if (message.op === 'reseed') {
      random.reseed();
    } else {
      exit(0);
    }
  });
  worker.once('online', () => cells.start());
}
