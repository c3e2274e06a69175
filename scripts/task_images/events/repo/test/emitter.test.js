'use strict';

const assert = require('node:assert');
const test = require('node:test');
const { Emitter } = require('../src/emitter');

test('calls listeners in order', () => {
  const heard = [];
  const emitter = new Emitter().on('a', (value) => heard.push(value)).on('a', (value) => heard.push(-value));
  assert.strictEqual(emitter.emit('a', 1), true);
  assert.deepStrictEqual(heard, [1, -1]);
});

test('says whether anybody listened', () => {
  assert.strictEqual(new Emitter().emit('a'), false);
});

test('forgets a listener', () => {
  const listener = () => assert.fail();
  assert.strictEqual(new Emitter().on('a', listener).off('a', listener).emit('a'), false);
});
