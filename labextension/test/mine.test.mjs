// My sessions: what is folded out of a card, and which news are told how.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { parseHTML } from 'linkedom';

import { CheckpointFold, LogFold } from '../lib/lab/traces.js';
import { KINDS, mannerOf, minutesUntil, newsOf } from '../lib/told.js';

const NOW = 1_800_000_000;
let due = 0;
const clock = Date.now;
const settled = () => new Promise(resolve => setTimeout(resolve, 0));

before(() => {
  const { window, document } = parseHTML('<html><body></body></html>');
  Object.assign(globalThis, { window, document });
  Date.now = () => clock() + due;
});

/** As the reader does, and again once it may be read again. */
async function opened(fold) {
  fold.node.open = true;
  due += 60_000;
  fold.look();
  await settled();
}

test('a log follows what is written, and is taken anew where it was rewritten', async () => {
  const asked = [];
  const pages = [
    { text: 'a\n', start: 0, after: 2, ended: false },
    { text: 'b\n', start: 2, after: 4, ended: false },
    { text: 'new\n', start: 0, after: 4, ended: true }
  ];
  const fold = new LogFold('train', async after => (asked.push(after), pages.shift()));
  fold.look();
  assert.deepEqual(asked, [], 'a closed one is not read');
  const text = () => fold.node.querySelector('pre').textContent;
  await opened(fold);
  assert.equal(text(), 'a\n');
  fold.look();
  await settled();
  assert.equal(asked.length, 1, 'not again at once');
  await opened(fold);
  assert.equal(text(), 'a\nb\n');
  await opened(fold);
  assert.equal(text(), 'new\n');
  await opened(fold);
  assert.deepEqual(asked, [-1, 2, 4], 'what has ended is read no more');
});

test('a log is never longer than anybody reads, and says why it cannot be had', async () => {
  const pages = [{ text: 'x'.repeat(70_000), start: 0, after: 70_000, ended: false }];
  const fold = new LogFold('train', async () => pages.shift() ?? Promise.reject(new Error('no service')));
  await opened(fold);
  assert.equal(fold.node.querySelector('pre').textContent.length, 65_536);
  await opened(fold);
  assert.equal(fold.node.querySelector('[role=alert]').textContent, 'no service');
  assert.equal(fold.node.querySelector('pre').textContent.length, 65_536, 'what was read stays');
});

test('checkpoints say what they do not hold, and are gone back to only where a kernel runs', async () => {
  const lost = [{ name: 'reader', reason: 'an open file' }];
  const found = ['c2', 'c1'].map((id, at) => ({ id, at_s: NOW - at, size_bytes: 1e6, duration_s: 1, lost: at ? lost : [] }));
  const back = [];
  const fold = new CheckpointFold('n.ipynb', async () => found, one => back.push(one.id), () => NOW);
  await opened(fold);
  const [, older] = fold.node.querySelectorAll('li');
  assert.match(older.textContent, /1\.00 MB · without reader/);
  const button = older.querySelector('button');
  assert.ok(button.hidden);
  fold.restorable = true;
  assert.ok(!button.hidden);
  button.dispatchEvent(new window.Event('click'));
  assert.deepEqual(back, ['c1']);
});

const session = changes => ({ state: 'running', not_moved: null, leaving: null, deadline_s: null, ...changes });

test('what happened is told once, as what it is', () => {
  const saving = { state: 'checkpointing', leaving: 'rank', deadline_s: NOW + 60 };
  assert.equal(newsOf(session(), session(saving)), 'leaves');
  assert.equal(newsOf(session(saving), session(saving)), null);
  assert.equal(newsOf(session(), session({ ...saving, leaving: 'park' })), null, 'who parks it knows');
  assert.equal(newsOf(session(saving), session({ state: 'queued' })), 'left');
  assert.equal(newsOf(session({ state: 'starting' }), session()), 'started');
  assert.equal(newsOf(session({ state: 'queued' }), session()), 'started');
  assert.equal(newsOf(session({ state: 'restoring' }), session()), 'restored');
  assert.equal(newsOf(session({ state: 'queued' }), session({ state: 'restoring' })), null);
  assert.equal(newsOf(session({ state: 'checkpointing' }), session()), null, 'a save of its own');
  assert.equal(newsOf(session(), session({ not_moved: 'gen' })), 'stayed');
});

test('each kind is told as its reader wants it, and nothing pops up where nothing is to', () => {
  for (const kind of KINDS) {
    assert.equal(mannerOf(kind, {}), 'show');
    assert.equal(mannerOf(kind, { [kind]: 'never' }), 'never');
    assert.equal(mannerOf(kind, { [kind]: 7 }), 'show');
    assert.equal(mannerOf(kind, { doNotDisturb: true }), 'quiet');
    assert.equal(mannerOf(kind, { doNotDisturb: true, [kind]: 'never' }), 'never');
  }
});

test('minutes are counted as a person does', () => {
  assert.equal(minutesUntil(NOW + 119, NOW), 2);
  assert.equal(minutesUntil(NOW + 5, NOW), 1);
  assert.equal(minutesUntil(NOW - 5, NOW), 1);
});
