'use strict';
// process.stdout and process.stderr: written at once and whole. What belongs to an earlier cell goes with that cell's number.

const fs = require('node:fs');
const { Writable } = require('node:stream');

const RETRY_MS = 2;
const LONGEST_REPORT = 256 * 1024;
const pause = new Int32Array(new SharedArrayBuffer(4));

// Writes everything, also where a child process that shares the pipe has made it fail instead of wait.
function writeAll(fd, bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(fd, bytes, at, bytes.length - at);
    } catch (error) {
      if (error.code !== 'EAGAIN') return;
      Atomics.wait(pause, 0, 0, RETRY_MS);
    }
  }
}

class Output extends Writable {
  constructor(fd, name, sendLate) {
    super({ decodeStrings: true, emitClose: false, autoDestroy: false });
    Object.assign(this, { fd, _isStdio: true });
    this._name = name;
    this._sendLate = sendLate;
  }

  _write(chunk, _encoding, done) {
    if (!this._sendLate(this._name, chunk)) writeAll(this.fd, chunk);
    done();
  }

  // A later cell wants to write too.
  end(chunk, encoding, done) {
    const callback = [chunk, encoding, done].find((argument) => typeof argument === 'function');
    if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') this.write(chunk, typeof encoding === 'string' ? encoding : undefined);
    if (callback) process.nextTick(callback);
    return this;
  }

  destroy() {
    return this;
  }
}

// `lateCell` gives the number of the earlier cell that is writing, if it is one; `report` sends a message.
function install(lateCell, report) {
  const sendLate = (name, chunk) => {
    const cell = lateCell();
    if (cell === undefined) return false;
    for (let at = 0; at < chunk.length; at += LONGEST_REPORT) {
      report({ op: 'stream', cell, name, text: chunk.subarray(at, at + LONGEST_REPORT).toString() });
    }
    return true;
  };
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    const stream = new Output(fd, name, sendLate);
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream });
  }
}

module.exports = { install, writeAll };
