'use strict';

const assert = require('node:assert');
const test = require('node:test');
const { Lines } = require('../lines');

function cut(...chunks) {
  const lines = new Lines();
  return [...chunks.flatMap((chunk) => lines.push(chunk)), ...lines.end()];
}

test('cuts at line feeds', () => {
  assert.deepStrictEqual(cut('a\nb\n'), ['a', 'b']);
});

test('keeps a last line without an end', () => {
  assert.deepStrictEqual(cut('a\nb'), ['a', 'b']);
});

test('joins chunks', () => {
  assert.deepStrictEqual(cut('a', 'b\nc', '\n'), ['ab', 'c']);
});

test('keeps empty lines', () => {
  assert.deepStrictEqual(cut('\n\na\n'), ['', '', 'a']);
});
