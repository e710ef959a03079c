'use strict';
// What a cell's text becomes before it is evaluated. Lines keep their numbers.

const acorn = loadParser();

function loadParser() {
  try {
    return require('internal/deps/acorn/acorn/dist/acorn');
  } catch {
    // Without it cells run as they are: `import` is then what it is to the REPL, an error.
    return null;
  }
}

// Returns the code to evaluate and whether its value is the cell's result: that of a last statement which is an expression.
function prepare(code, importName) {
  const parsed = parse(code);
  if (parsed === null) return { code, hasValue: true };
  const edits = [];
  for (const statement of parsed.tree.body) editModuleSyntax(statement, parsed.code, importName, edits);
  visit(parsed.tree, (node) => {
    if (node.type === 'ImportExpression') edits.push({ start: node.start, end: node.start + 'import'.length, text: importName });
  });
  const last = parsed.tree.body.at(-1);
  return { code: applied(parsed.code, edits), hasValue: last?.type === 'ExpressionStatement' };
}

function parse(code) {
  if (acorn === null) return null;
  // As in the REPL: what looks like an object is one.
  const attempts = /^\s*\{[^]*\}\s*$/.test(code) ? [[`(${code.trimEnd()})`, 'script']] : [];
  attempts.push([code, 'script'], [code, 'module']);
  for (const [text, sourceType] of attempts) {
    try {
      const tree = acorn.parse(text, { ecmaVersion: 'latest', sourceType, allowAwaitOutsideFunction: true, allowHashBang: true });
      return { code: text, tree };
    } catch {
      // Told by the engine itself if no attempt succeeds.
    }
  }
  return null;
}

function visit(root, see) {
  const pending = [root];
  while (pending.length > 0) {
    const node = pending.pop();
    if (typeof node.type === 'string') see(node);
    for (const child of Object.values(node)) {
      if (child !== null && typeof child === 'object' && !(child instanceof RegExp)) pending.push(child);
    }
  }
}

function editModuleSyntax(node, code, importName, edits) {
  if (node.type === 'ImportDeclaration') {
    const lines = code.slice(node.start, node.end).replace(/[^\n]/g, '');
    edits.push({ start: node.start, end: node.end, text: importStatement(node, importName) + lines });
  } else if (node.type === 'ExportNamedDeclaration' && node.declaration) {
    edits.push({ start: node.start, end: node.declaration.start, text: blanks(code, node.start, node.declaration.start) });
  } else if (node.type === 'ExportDefaultDeclaration') {
    const keep = /^(Function|Class)Declaration$/.test(node.declaration.type) && node.declaration.id !== null;
    if (keep) edits.push({ start: node.start, end: node.declaration.start, text: blanks(code, node.start, node.declaration.start) });
  }
}

function importStatement(node, importName) {
  const attributes = (node.attributes ?? []).map(({ key, value }) => `${key.raw ?? key.name}: ${value.raw}`);
  const options = attributes.length > 0 ? `, {with: {${attributes.join(', ')}}}` : '';
  const loaded = `await ${importName}(${node.source.raw}${options})`;
  const namespace = node.specifiers.find((item) => item.type === 'ImportNamespaceSpecifier');
  const names = node.specifiers.filter((item) => item !== namespace).map((item) => {
    const imported = item.type === 'ImportDefaultSpecifier' ? 'default' : (item.imported.raw ?? item.imported.name);
    return `${imported}: ${item.local.name}`;
  });
  if (namespace) {
    const others = names.length > 0 ? `, {${names.join(', ')}} = ${namespace.local.name}` : '';
    return `const ${namespace.local.name} = ${loaded}${others};`;
  }
  return names.length > 0 ? `const {${names.join(', ')}} = ${loaded};` : `${loaded};`;
}

function blanks(code, start, end) {
  return code.slice(start, end).replace(/[^\n]/g, ' ');
}

function applied(code, edits) {
  for (const { start, end, text } of edits.sort((a, b) => b.start - a.start)) {
    code = code.slice(0, start) + text + code.slice(end);
  }
  return code;
}

module.exports = { prepare };
