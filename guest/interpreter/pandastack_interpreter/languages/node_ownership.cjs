'use strict';
// Which cell a callback or a promise belongs to: the one that started it.

const { AsyncLocalStorage } = require('node:async_hooks');

const owner = new AsyncLocalStorage();
// Its first use switches on what the function below switches off in part.
owner.run(0, () => {});

const hooks = withoutDeprecations(() => process.binding('async_wrap'));

function withoutDeprecations(work) {
  const before = process.noDeprecation;
  process.noDeprecation = true;
  try {
    return work();
  } finally {
    process.noDeprecation = before;
  }
}

// A callback that an interrupt ends leaves its mark on the stack that the storage rests on. Node.js would take that for a fault of its own
// and abort; its checks depend on these two counters.
function tolerateTermination() {
  const { async_hook_fields: fields, constants, clearAsyncIdStack } = hooks;
  fields[constants.kTotals] = 0;
  fields[constants.kCheck] = 0;
  clearAsyncIdStack();
}

module.exports = { owner, tolerateTermination };
