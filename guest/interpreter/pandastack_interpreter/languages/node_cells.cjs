'use strict';
// The main thread's part: cells one after another, each with its end.

const fs = require('node:fs');
const inspector = require('node:inspector');
const Module = require('node:module');
const path = require('node:path');
const { pathToFileURL } = require('node:url');

const { bundleOf, makeDisplay } = require('./node_display.cjs');
const { describe } = require('./node_errors.cjs');
const output = require('./node_output.cjs');
const { owner, tolerateTermination } = require('./node_ownership.cjs');
const random = require('./node_random.cjs');
const { prepare } = require('./node_source.cjs');

const GLOBAL_MODULES = ['/usr/local/lib/node_modules', '/usr/lib/node_modules', '/usr/share/nodejs'];
// As long as `import`, so that columns stay right.
const IMPORT = '$mport';
const INTERRUPTED = 130;
const { setImmediate } = globalThis;

class Cells {
  // `reports` is a descriptor.
  constructor(reports) {
    this.reports = reports;
    this.session = new inspector.Session();
    this.session.connect();
    this.current = null;
    this.number = 0;
    // Of what a command in the foreground does with the signal, a cell need not say more than that it was interrupted.
    this.onInterrupt = () => this.interrupt();
    this.report = (message) => {
      const cell = this.owningCell();
      output.writeAll(this.reports, Buffer.from(`${JSON.stringify({ cell, ...message })}\0`));
    };
  }

  start() {
    process.argv.length = 1;
    process.execArgv = [];
    Module.globalPaths.push(...GLOBAL_MODULES);
    random.install();
    output.install(() => this.lateCell(), this.report);
    process.setUncaughtExceptionCaptureCallback((error) => this.uncaught(error));
    process.on('SIGINT', this.onInterrupt);
    this.defineGlobals();
    this.resetInput();
    this.receiver = this.remoteReceiver();
    this.restingHandles = process.getActiveResourcesInfo().length;
    this.report({ op: 'ready' });
  }

  defineGlobals() {
    const hidden = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
    hidden('require', makeRequire());
    hidden(IMPORT, importFromHere);
    hidden('display', makeDisplay(this.report));
    hidden('module', new Module('<cell>'));
    hidden('exports', globalThis.module.exports);
    process.exit = process.reallyExit = (code) => this.exit(code);
  }

  // A function that the inspector can hand any value of a cell to, whatever became of the globals.
  remoteReceiver() {
    let objectId;
    globalThis.$receive = (value) => {
      this.received = value;
    };
    this.session.post('Runtime.evaluate', { expression: '$receive' }, (_error, reply) => {
      objectId = reply.result.objectId;
    });
    delete globalThis.$receive;
    return objectId;
  }

  localValue(remote) {
    const { objectId, unserializableValue, value } = remote;
    const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
    this.received = undefined;
    this.session.post('Runtime.callFunctionOn', {
      objectId: this.receiver, functionDeclaration: 'function (value) { this(value); }', arguments: [argument],
    });
    const { received } = this;
    this.received = undefined;
    return received;
  }

  owningCell() {
    return owner.getStore() ?? this.number;
  }

  lateCell() {
    const cell = this.owningCell();
    return cell === this.number ? undefined : cell;
  }

  run(request) {
    const cell = { ...request, file: `cell-${request.number}.js`, ended: false };
    this.current = cell;
    this.number = cell.number;
    if (!process.listeners('SIGINT').includes(this.onInterrupt)) process.on('SIGINT', this.onInterrupt);
    if (cell.reseed) random.reseed();
    tolerateTermination();
    owner.run(cell.number, () => {
      try {
        this.enter(cell);
        this.evaluate(cell);
      } catch (error) {
        this.finish(cell, { failed: true, thrown: error });
      }
    });
  }

  enter(cell) {
    process.exitCode = undefined;
    cell.variables = Object.keys(cell.env).map((name) => [name, process.env[name]]);
    Object.assign(process.env, cell.env);
    if (cell.cwd) {
      cell.before = process.cwd();
      process.chdir(cell.cwd);
    }
    if (cell.stdin !== null) openInput(cell.stdin);
    this.resetInput();
  }

  leave(cell) {
    for (const [name, value] of cell.variables ?? []) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    if (cell.before !== undefined) {
      try {
        process.chdir(cell.before);
      } catch {
        // The directory is gone; the cell's own will do.
      }
    }
    if (cell.stdin !== null) openInput('/dev/null');
  }

  resetInput() {
    let stream;
    Object.defineProperty(process, 'stdin', {
      configurable: true,
      enumerable: true,
      get: () => (stream ??= Object.assign(new fs.ReadStream(null, { fd: 0, autoClose: false }), { fd: 0 })),
    });
  }

  evaluate(cell) {
    const { code, hasValue } = prepare(cell.code.replace(/^\uFEFF/, ''), IMPORT);
    const expression = `${code}\n//# sourceURL=${cell.file}`;
    const options = { expression, replMode: true, awaitPromise: true, objectGroup: 'cell' };
    this.session.post('Runtime.evaluate', options, (error, reply) => {
      if (cell.ended) return;
      if (error) this.finish(cell, { interrupted: true });
      else owner.run(cell.number, () => this.settle(cell, reply, hasValue));
    });
  }

  async settle(cell, { result, exceptionDetails: failure }, hasValue) {
    try {
      let value = this.localValue(result);
      this.session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
      if (failure) {
        this.finish(cell, { failed: true, thrown: value, place: placeOf(cell, failure, value) });
        return;
      }
      if (!hasValue) value = undefined;
      // `main()` as the last line: the cell is what it does, not a promise of it.
      if (value instanceof Promise) value = await value;
      if (cell.ended) return;
      if (value !== undefined) this.report({ op: 'result', data: bundleOf(value) });
      this.finish(cell, {});
    } catch (error) {
      this.finish(cell, { failed: true, thrown: error });
    }
  }

  // The first of what ends a cell counts, unless a graver follows at once: the end is told two turns of the event loop later, when a
  // rejection that nobody handles and a signal are known.
  finish(cell, outcome) {
    if (!cell.ended) owner.run(undefined, () => setImmediate(() => setImmediate(() => this.conclude(cell))));
    if (!cell.ended || gravity(outcome) > gravity(cell.outcome)) cell.outcome = outcome;
    cell.ended = true;
  }

  conclude(cell) {
    const { exit = process.exitCode } = cell.outcome;
    this.leave(cell);
    this.current = null;
    const error = this.errorOf(cell.outcome);
    const code = error ? (error.name === 'KeyboardInterrupt' ? INTERRUPTED : 1) : Number(exit ?? 0) & 0xff;
    const tasks = Math.max(0, process.getActiveResourcesInfo().length - this.restingHandles);
    this.report({ op: 'end', cell: cell.number, exit_code: code, error: error ?? exitError(code), tasks });
  }

  errorOf({ interrupted, thrown, place, failed }) {
    if (interrupted) return { name: 'KeyboardInterrupt', value: '', traceback: 'KeyboardInterrupt' };
    return failed ? describe(thrown, place) : null;
  }

  interrupt() {
    if (this.current !== null) this.finish(this.current, { interrupted: true });
  }

  uncaught(error) {
    if (process.listenerCount('uncaughtException') > 0) {
      process.emit('uncaughtException', error, 'uncaughtException');
      return;
    }
    const cell = this.current;
    if (cell !== null && cell.number === this.owningCell()) this.finish(cell, { failed: true, thrown: error });
    else process.stderr.write(`Uncaught ${describe(error).traceback}\n`);
  }

  exit(code) {
    const cell = this.current;
    if (cell !== null && cell.number === this.owningCell()) {
      this.finish(cell, { exit: code ?? process.exitCode ?? 0 });
    }
    // Nothing after the call may run, neither `catch` nor `finally`.
    this.session.post('Runtime.terminateExecution');
    for (;;);
  }
}

function gravity({ interrupted, failed, exit }) {
  if (exit !== undefined) return 3;
  if (interrupted) return 2;
  return failed ? 1 : 0;
}

function exitError(code) {
  return code === 0 ? null : { name: 'ExitStatus', value: `exit status ${code}`, traceback: `ExitStatus: exit status ${code}` };
}

function placeOf(cell, failure, error) {
  if (!(error instanceof SyntaxError) || String(error.stack).includes(`${cell.file}:`)) return undefined;
  return { file: cell.file, line: failure.lineNumber, column: failure.columnNumber, code: cell.code };
}

// The lowest free descriptor is the one that was closed.
function openInput(file) {
  fs.closeSync(0);
  fs.openSync(file, 'r');
}

function makeRequire() {
  const here = () => Module.createRequire(path.join(process.cwd(), '[cell]'));
  const require = (name) => here()(name);
  require.resolve = Object.assign((...args) => here().resolve(...args), { paths: (name) => here().resolve.paths(name) });
  Object.defineProperty(require, 'cache', { get: () => Module._cache });
  return require;
}

// `import()` of a cell: from the working directory, and for packages as far as `require` finds them.
async function importFromHere(name, options) {
  const file = path.join(process.cwd(), '[cell]');
  const here = new Module(file);
  here._compile('module.exports = (name, options) => import(name, options)', file);
  try {
    return await here.exports(name, options);
  } catch (error) {
    if (error?.code !== 'ERR_MODULE_NOT_FOUND' || /^[./]|^\w+:/.test(name)) throw error;
    let found;
    try {
      found = globalThis.require.resolve(name);
    } catch {
      throw error;
    }
    return import(pathToFileURL(found));
  }
}

module.exports = { Cells };
