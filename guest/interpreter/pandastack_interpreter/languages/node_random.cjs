'use strict';
// Random numbers of a copy: the engine's and OpenSSL's generators were copied with the memory and would draw what its siblings draw.

const crypto = require('node:crypto');
const fs = require('node:fs');
const { syncBuiltinESMExports } = require('node:module');

const DOUBLES = 1024;
let isCopy = false;
let draw = Math.random;

function fill(view) {
  const bytes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
  const device = fs.openSync('/dev/urandom', 'r');
  try {
    for (let at = 0; at < bytes.length; ) at += fs.readSync(device, bytes, at, bytes.length - at, null);
  } finally {
    fs.closeSync(device);
  }
  return view;
}

function mathRandom() {
  const words = new BigUint64Array(DOUBLES);
  let left = 0;
  return function random() {
    if (left === 0) {
      fill(words);
      left = DOUBLES;
    }
    return Number(words[--left] >> 11n) / 2 ** 53;
  };
}

function below(range) {
  // 48 bits, as the original; what would favour small numbers is drawn again.
  const limit = 2 ** 48 - (2 ** 48 % range);
  for (;;) {
    const drawn = fill(Buffer.alloc(6)).readUIntBE(0, 6);
    if (drawn < limit) return drawn % range;
  }
}

function uuid() {
  const hex = fill(Buffer.alloc(16));
  hex[6] = (hex[6] & 0x0f) | 0x40;
  hex[8] = (hex[8] & 0x3f) | 0x80;
  return hex.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

// Each calls the original first, for its checks of the arguments, and as it is while this process is no copy.
function install() {
  // A method, which is no constructor, as the original. Code may keep it, so it is never replaced later.
  Math.random = { random() { return draw(); } }.random;
  const { randomBytes, randomFillSync, randomFill, randomInt, randomUUID, webcrypto } = crypto;
  crypto.randomBytes = function (size, done) {
    if (!isCopy || done === undefined) return isCopy ? fill(randomBytes(size)) : randomBytes(size);
    return isCopy ? randomBytes(size, (error, bytes) => done(error, bytes && fill(bytes))) : randomBytes(size, done);
  };
  crypto.randomFillSync = (buffer, offset = 0, size) => {
    randomFillSync(buffer, offset, size);
    if (isCopy) fill(part(buffer, offset, size));
    return buffer;
  };
  crypto.randomFill = (buffer, ...rest) => {
    const done = rest.pop();
    return randomFill(buffer, ...rest, (error, filled) => {
      if (isCopy && !error) fill(part(buffer, ...rest));
      done(error, filled);
    });
  };
  crypto.randomInt = (...rest) => {
    if (!isCopy) return randomInt(...rest);
    const done = typeof rest.at(-1) === 'function' ? rest.pop() : null;
    randomInt(...rest);
    const [low, high] = rest.length > 1 ? rest : [0, rest[0]];
    const drawn = low + below(high - low);
    return done === null ? drawn : process.nextTick(done, undefined, drawn);
  };
  crypto.randomUUID = (options) => (isCopy ? uuid() : randomUUID(options));
  const getRandomValues = webcrypto.getRandomValues.bind(webcrypto);
  const filled = (view) => (isCopy ? fill(getRandomValues(view)) : getRandomValues(view));
  Object.defineProperty(webcrypto, 'getRandomValues', { value: filled, writable: true, configurable: true });
  Object.defineProperty(webcrypto, 'randomUUID', { value: crypto.randomUUID, writable: true, configurable: true });
  syncBuiltinESMExports();
}

function part(buffer, offset = 0, size) {
  const unit = buffer.BYTES_PER_ELEMENT ?? 1;
  const start = (buffer.byteOffset ?? 0) + offset * unit;
  const length = size === undefined ? buffer.byteLength - offset * unit : size * unit;
  return new Uint8Array(buffer.buffer ?? buffer, start, length);
}

// From now on everything comes from the operating system, whose generator is not copied.
const HOOKS = {
  math() { draw = mathRandom(); },
  crypto() { isCopy = true; },
};

function reseed() {
  for (const hook of Object.values(HOOKS)) hook();
}

module.exports = { install, reseed, HOOKS };
