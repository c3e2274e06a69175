'use strict';

const assert = require('node:assert');
const test = require('node:test');
const { slug } = require('../lib/slug');

test('joins words with dashes', () => {
  assert.strictEqual(slug('Hello, World!'), 'hello-world');
});

test('takes another separator', () => {
  assert.strictEqual(slug('a b', { separator: '_' }), 'a_b');
});

test('keeps digits', () => {
  assert.strictEqual(slug('Route 66'), 'route-66');
});

test('gives nothing for nothing', () => {
  assert.strictEqual(slug(' !? '), '');
});
