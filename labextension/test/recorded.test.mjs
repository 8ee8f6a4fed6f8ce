// Recorded outputs against shown ones: nothing shown twice, nothing left out.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { latestByCell, missing, normalised, withNote } from '../lib/recorded.js';

const stream = (text, name = 'stdout') => ({ output_type: 'stream', name, text });
const data = (text, more = {}) => ({
  output_type: 'display_data',
  data: { 'text/plain': text },
  metadata: {},
  ...more
});

test('neighbouring streams of one name are one', () => {
  assert.deepEqual(normalised([stream('a\n'), stream(['b\n', 'c']), stream('!', 'stderr'), stream('d')]), [
    stream('a\nb\nc'),
    stream('!', 'stderr'),
    stream('d')
  ]);
});

test('outputs that are shown already are left alone, however they are written', () => {
  assert.deepEqual(missing([stream(['a\n', 'b'])], [stream('a\n'), stream('b')]), []);
  assert.deepEqual(missing([data('x')], [data(['x'], { transient: { display_id: '1' } })]), []);
  assert.deepEqual(missing([], []), []);
});

test('what a stream grew by is added, and what came after it', () => {
  assert.deepEqual(missing([stream('1\n')], [stream('1\n2\n'), data('x')]), [stream('2\n'), data('x')]);
  assert.deepEqual(missing([], [stream('1\n')]), [stream('1\n')]);
});

test('other outputs are replaced', () => {
  assert.equal(missing([stream('old')], [stream('new')]), null);
  assert.equal(missing([data('x'), data('y')], [data('x')]), null);
  assert.equal(missing([stream('a'), data('x')], [stream('ab'), data('x')]), null);
});

test('the latest run of a cell counts', () => {
  const run = (msg_id, cell_id) => ({ msg_id, cell_id });
  const latest = latestByCell([run('1', 'a'), run('2', 'b'), run('3', 'a'), run('4', null)]);
  assert.deepEqual([...latest].map(([cell, { msg_id }]) => [cell, msg_id]), [['a', '3'], ['b', '2']]);
});

test('why a cell was cut is said once, by who knows best', () => {
  const note = { output_type: 'error', ename: 'KernelDied', evalue: 'The kernel died', traceback: [] };
  const recorded = { status: 'interrupted', outputs: [stream('one\n')] };
  assert.deepEqual(missing([stream('one\n'), note], withNote([stream('one\n'), note], recorded)), []);
  assert.deepEqual(withNote([note], recorded), [stream('one\n'), note]);
  assert.deepEqual(withNote([note], { ...recorded, status: 'ok' }), recorded.outputs);
  const general = { output_type: 'error', ename: 'CellCut', evalue: 'This cell was cut', traceback: [] };
  const completed = { ...recorded, outputs: [stream('one\n'), general] };
  assert.deepEqual(withNote([stream('one\n'), note], completed), [stream('one\n'), note]);
  assert.deepEqual(withNote([stream('one\n')], completed), completed.outputs);
});
