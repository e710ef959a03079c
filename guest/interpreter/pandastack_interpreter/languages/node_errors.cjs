'use strict';
// What a cell failed with, as the author of the code wants to read it: without the frames of the machinery that runs it.

const util = require('node:util');

const MACHINERY = /^\s+at .*(?:node:|[\\/]node_(?:context|cells|source|display|output|ownership|random|errors)\.cjs)/;
const ENTRY = /^\s+at (?:Session\.post|.*\bSession\.post) \(node:inspector/;
const LONGEST_STACK = 60;

// name, value and traceback of whatever was thrown. `place` is where the engine saw a syntax error: {file, line, column, code}.
function describe(thrown, place) {
  try {
    if (!util.types.isNativeError(thrown) && !(thrown instanceof Error)) {
      const value = util.inspect(thrown);
      return { name: 'Error', value, traceback: `Uncaught ${value}` };
    }
    const name = String(thrown.name || thrown.constructor?.name || 'Error');
    const text = usersFrames(util.inspect(thrown, { depth: 4 }));
    return { name, value: String(thrown.message), traceback: place ? `${pointer(place)}\n${text}` : text };
  } catch (broken) {
    const value = `an error that cannot be described (${broken?.name})`;
    return { name: 'Error', value, traceback: value };
  }
}

function usersFrames(text) {
  const lines = [];
  let below = false;
  for (const line of text.split('\n')) {
    const isFrame = /^\s+at /.test(line);
    // Below the entry into the cell there are our frames only.
    below = isFrame && (below || ENTRY.test(line));
    if (!below && !MACHINERY.test(line)) lines.push(line);
    else if (line.endsWith(' {')) lines.push(`${lines.pop()} {`);
  }
  if (lines.length > LONGEST_STACK) lines.splice(LONGEST_STACK / 2, lines.length - LONGEST_STACK, '    [...]');
  return lines.join('\n');
}

function pointer({ file, line, column, code }) {
  const source = code.split('\n')[line] ?? '';
  return `${file}:${line + 1}\n${source}\n${' '.repeat(Math.min(column, source.length))}^\n`;
}

module.exports = { describe };
