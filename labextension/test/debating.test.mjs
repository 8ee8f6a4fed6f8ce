// Requests for budgets in words: what is asked for, how it stands, and what of somebody's attachment is shown.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { changed, instant, localField, played, ranked, standing, times, wish } from '../lib/lab/debating.js';
import { LabReader } from '../lib/lab/reader.js';

const NOW = 1_800_000_000;
const request = (changes = {}) => ({
  id: 7,
  state: 'open',
  user: 'ria',
  asked_s: NOW,
  wished: { language: '90' },
  shares: { language: '90' },
  gpus: null,
  why: 'the paper',
  from_s: null,
  until_s: null,
  decision: null,
  preview: null,
  before: {},
  in_force_s: null,
  over_s: null,
  problem: '',
  may: { decide: false, withdraw: true },
  ...changes
});
const decision = { by: 'uma', at_s: NOW, accepted: true, words: '', amended: false };

test('a wish says what is now and what would be, or what was', () => {
  const now = new Map([['language', '50']]);
  assert.equal(wish(request(), now), 'language: 50 → 90');
  assert.equal(wish(request({ gpus: 6 }), now), 'language: 50 → 90 (for 6 GPUs)');
  assert.equal(wish(request({ state: 'in_force', before: { language: '40' } }), now), 'language: 40 → 90');
  assert.equal(wish(request({ state: 'refused' }), now), 'language: 90');
});

test('each state is a sentence', () => {
  assert.equal(standing(request(), NOW), 'open');
  assert.match(
    standing(request({ state: 'accepted', decision, from_s: NOW + 60, until_s: NOW + 120 }), NOW),
    /^accepted by uma, comes into force \d\d:\d\d until \d\d:\d\d$/
  );
  assert.match(standing(request({ state: 'in_force', decision, in_force_s: NOW }), NOW), /^in force since \d\d:\d\d, decided by uma$/);
  assert.match(standing(request({ state: 'over', decision, over_s: NOW }), NOW), /^over since \d\d:\d\d$/);
  assert.equal(standing(request({ state: 'refused', decision }), NOW), 'refused by uma');
  assert.equal(standing(request({ state: 'withdrawn', decision }), NOW), 'withdrawn by uma');
  assert.equal(standing(request({ state: 'failed', problem: 'it is gone' }), NOW), 'could not come into force: it is gone');
  assert.match(times(request({ from_s: NOW, until_s: NOW + 60 }), NOW), /^from \d\d:\d\d until \d\d:\d\d$/);
  assert.equal(times(request({ state: 'refused', from_s: NOW }), NOW), '');
});

test('what can still change comes first, and little of the rest', () => {
  const all = ['refused', 'open', 'over', 'accepted', 'withdrawn'].map((state, id) => request({ id, state }));
  assert.deepEqual(ranked(all, 2).map(one => one.id), [1, 3, 0, 2]);
});

test('a change of the history names shares and members', () => {
  const then = (share, entitlement, members = []) => ({ share, entitlement, members });
  const rows = [
    { path: 'a', change: 'changed', before: then('1', 0.5), after: then('3', 0.75) },
    { path: 'b', change: 'removed', before: then('1', 0.5), after: then(null, null) },
    { path: 'c', change: 'changed', before: then('1', 0.5, ['bo']), after: then('1', 0.5) }
  ];
  assert.deepEqual(changed({ count: 5, allocations: rows }), [
    'a: 1 → 3 (50.0 % → 75.0 %)',
    'b: 1 → – (50.0 % → –)',
    'c: members: all',
    'and 2 more'
  ]);
});

test('only a what-if is shown of what somebody attached', () => {
  const figures = { entitlement: 0.5, gpus_held: 1, delivered_gpu_s: 2, wait_s: { p50: null }, preemptions: 0 };
  const good = { allocations: [{ path: 'a', verdict: 'gains', before: figures, after: null }] };
  assert.equal(played(good), good);
  for (const wrong of [
    undefined,
    {},
    { allocations: {} },
    { allocations: [null] },
    { allocations: [{ path: 'a', verdict: '<b>', before: figures, after: figures }] },
    { allocations: [{ path: 'a', verdict: '', before: { ...figures, gpus_held: 'x' }, after: null }] },
    { allocations: [{ path: 'a', verdict: '', before: figures, after: {} }] }
  ]) {
    assert.equal(played(wrong), null);
  }
});

test('a moment goes through a field by the reader’s clock', () => {
  assert.equal(instant(localField(NOW)), NOW);
  assert.equal(localField(null), '');
  assert.equal(instant(''), undefined);
  assert.equal(instant('soon'), undefined);
});

test('what is asked of the server', async () => {
  const asked = [];
  const reader = new LabReader((path, init = {}, query) => {
    asked.push([init.method ?? 'GET', path.join('/'), init.body ? JSON.parse(init.body) : query]);
    return Promise.resolve(path[1] === 'requests' && path[2] === '8' ? null : {});
  });
  await reader.requests(20);
  await reader.ask({ shares: { a: 2 }, why: 'w' });
  await reader.decide(7, 'accept', { words: 'yes', from_s: 0 });
  await reader.budgetHistory(9, 10);
  await reader.divide({ a: 2 }, { a: '1' }, { why: 'w', until_s: 5 });
  assert.deepEqual(asked, [
    ['GET', 'lab/requests', { limit: '20' }],
    ['POST', 'lab/requests', { shares: { a: 2 }, why: 'w' }],
    ['POST', 'lab/requests/7/accept', { words: 'yes', from_s: 0 }],
    ['GET', 'lab/budget-history', { before: '9', limit: '10' }],
    ['PUT', 'lab/divide', { why: 'w', until_s: 5, shares: { a: 2 }, seen: { a: '1' } }]
  ]);
  await assert.rejects(reader.request(8), /There is no such request/);
});
