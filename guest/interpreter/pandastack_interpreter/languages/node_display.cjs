'use strict';
// MIME bundles of values, and what cells call to show them.

const util = require('node:util');

const INSPECT = { depth: 4, maxArrayLength: 200, maxStringLength: 100_000 };
const LONGEST_JSON = 1024 * 1024;
// Deno's name for a method that returns a bundle; Jupyter kernels for JavaScript share it.
const FORMS = Symbol.for('Jupyter.display');

// The forms of a value: its own, or its text and, if it is plain data, JSON.
function bundleOf(value) {
  if (typeof value?.[FORMS] === 'function') return encoded(value[FORMS]());
  const bundle = { 'text/plain': util.inspect(value, INSPECT) };
  const json = plainJson(value);
  if (json !== undefined) bundle['application/json'] = json;
  return bundle;
}

function plainJson(value) {
  if (value === null || typeof value !== 'object' || util.types.isProxy(value)) return undefined;
  const prototype = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && prototype !== Object.prototype && prototype !== null) return undefined;
  try {
    const json = JSON.stringify(value);
    return json.length <= LONGEST_JSON ? json : undefined;
  } catch {
    // A cycle or a BigInt; the text shows it.
    return undefined;
  }
}

function encoded(bundle) {
  const entries = Object.entries(bundle).filter(([, data]) => data !== undefined && data !== null);
  return Object.fromEntries(entries.map(([mime, data]) => [mime, textOf(data)]));
}

function textOf(data) {
  if (typeof data === 'string') return data;
  if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64');
  return JSON.stringify(data) ?? String(data);
}

function isBundle(value) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return false;
  const keys = Object.keys(value);
  return keys.length > 0 && keys.every((key) => /^[a-z]+\/[\w.+-]+$/.test(key));
}

// display(value or bundle, {display_id, update}), display.html(text) and its like.
function makeDisplay(report) {
  const show = (data, options = {}) => report({ op: 'display', data, display_id: options.display_id ?? null, update: options.update === true });
  const display = (value, options) => show(isBundle(value) ? encoded(value) : bundleOf(value), options);
  const kinds = {
    html: 'text/html', markdown: 'text/markdown', latex: 'text/latex', svg: 'image/svg+xml', png: 'image/png', jpeg: 'image/jpeg', json: 'application/json',
  };
  for (const [name, mime] of Object.entries(kinds)) {
    display[name] = (data, options) => show({ [mime]: mime === 'application/json' ? JSON.stringify(data) : textOf(data) }, options);
  }
  display.clear = (wait = false) => report({ op: 'clear', wait: wait === true });
  return display;
}

module.exports = { bundleOf, makeDisplay };
