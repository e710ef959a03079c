// As warm.py, for a Node.js context.
globalThis.doctor = () => {
  const crypto = require('node:crypto');
  return {
    node_math: String(Math.random()),
    node_bytes: crypto.randomBytes(8).toString('hex'),
    node_uuid: crypto.randomUUID(),
  };
};
for (let draw = 0; draw < 5; draw++) globalThis.doctor();
