// A session in words: what a person reads in each state.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { allows, clock, countdown, detailText, lostText, size, statusText, ticks } from '../lib/text.js';

const NOW = 1_800_000_000;
const session = (changes = {}) => ({
  kernel_id: 'k',
  workload_id: 'w',
  state: 'running',
  allocation: 'vision/ada',
  gpus: 1,
  gpu_type: null,
  node: 'node-a',
  device_ids: ['GPU-1'],
  protected_until_s: null,
  deadline_s: null,
  leaving: null,
  utilization: null,
  position: null,
  estimate_s: null,
  start_by_s: null,
  reason: '',
  withheld: '',
  held_cells: 0,
  progress: null,
  checkpoint: null,
  restore_offered: false,
  resumable: true,
  on_cpu: false,
  moving: false,
  suggestion: null,
  not_moved: null,
  lost: [],
  ...changes
});

test('a countdown never shows zero while time is left', () => {
  assert.equal(countdown(0.1), '0:01');
  assert.equal(countdown(59.2), '1:00');
  assert.equal(countdown(3723), '1:02:03');
  assert.equal(countdown(-5), '0:00');
});

test('each state has its words', () => {
  const at = changes => statusText(session(changes), NOW);
  assert.equal(at({ protected_until_s: NOW + 245 }), '1 GPU · running, protected 4:05');
  assert.equal(at({ protected_until_s: NOW }), '1 GPU · running, may be preempted');
  assert.equal(
    at({ protected_until_s: NOW, resumable: false }),
    '1 GPU · running, may be preempted, cannot be saved'
  );
  assert.equal(at({ on_cpu: true }), '1 GPU · open on a CPU node');
  assert.equal(at({ moving: true, protected_until_s: NOW + 9 }), '1 GPU · running, moving to a CPU node');
  assert.match(detailText(session({ not_moved: 'gen is a generator' }), NOW), /Not moved to a CPU node: gen is/);
  assert.equal(at({ on_cpu: true, position: 2 }), '1 GPU · open on a CPU node, queued, place 2');
  assert.equal(at({ gpus: 2, gpu_type: 'H200', state: 'queued', position: 3 }), '2 × H200 · queued, place 3');
  // A promise is told from an estimate, and comes before it.
  const promised = { state: 'queued', estimate_s: NOW + 60, start_by_s: NOW + 120 };
  assert.match(at(promised), /^1 GPU · queued, starts by \d\d:\d\d$/);
  assert.match(at({ state: 'queued', estimate_s: NOW + 60 }), /^1 GPU · queued, starts about \d\d:\d\d$/);
  assert.equal(at({ state: 'parked', held_cells: 1 }), '1 GPU · parked · 1 cell held');
  // The scheduler parks what is not to be queued yet, but nobody parked it.
  const withheld = 'waiting for 3f2a81c0 to end';
  assert.equal(at({ state: 'parked', withheld }), `1 GPU · ${withheld}`);
  assert.equal(at({ state: 'checkpointing' }), '1 GPU · saving');
  assert.equal(at({ state: 'checkpointing', leaving: 'park', deadline_s: NOW + 60 }), '1 GPU · saving');
  assert.match(at({ state: 'checkpointing', leaving: 'rank', deadline_s: NOW + 60 }), /saving, has to leave by \d\d:\d\d$/);
  assert.equal(at({ gpus: 0, protected_until_s: NOW + 9 }), 'CPU · running');
  for (const state of ['starting', 'restoring', 'stopping', 'ended']) {
    assert.equal(at({ state, gpus: 4 }), `4 GPUs · ${state}`);
  }
});

test('how busy the GPUs are is told where it is measured, and only there', () => {
  assert.equal(statusText(session({ utilization: 0.874 }), NOW), '1 GPU 87 % busy · running');
  assert.equal(statusText(session({ utilization: 0 }), NOW), '1 GPU 0 % busy · running');
  assert.equal(statusText(session({ utilization: 0.5, on_cpu: true }), NOW), '1 GPU · open on a CPU node');
  assert.equal(statusText(session({ utilization: 0.5, state: 'parked' }), NOW), '1 GPU · parked');
  assert.match(detailText(session({ utilization: 0.874 }), NOW), /GPUs busy in the last minute: 87 %/);
  assert.match(detailText(session(), NOW), /How busy the GPUs are is not known/);
  assert.doesNotMatch(detailText(session({ gpus: 0 }), NOW), /busy/);
});

test('a restore says how far it has come', () => {
  const at = changes => statusText(session({ state: 'restoring', ...changes }), NOW);
  assert.equal(at({ progress: 0 }), '1 GPU · restoring');
  assert.equal(at({ progress: 0.426 }), '1 GPU · restoring 42 %');
});

test('only a protected running session ticks', () => {
  assert.equal(ticks(session({ protected_until_s: NOW + 1 }), NOW), true);
  assert.equal(ticks(session({ protected_until_s: NOW }), NOW), false);
  assert.equal(ticks(session({ state: 'parked', protected_until_s: NOW + 1 }), NOW), false);
});

test('the tooltip names each variable that was not saved, the notification the first three', () => {
  const lost = ['a', 'b', 'c', 'd'].map(name => ({ name, reason: 'an open file' }));
  assert.match(detailText(session({ lost }), NOW), /Not saved: d \(an open file\)/);
  assert.equal(lostText(session({ lost })), 'Not saved: a, b, c and 1 more.');
  assert.equal(lostText(session()), '');
});

test('sizes have three figures and a decimal unit', () => {
  assert.equal(size(12), '12 B');
  assert.equal(size(1234), '1.23 kB');
  assert.equal(size(25_600_000_000), '25.6 GB');
});

test('GPUs that are held and not used are told, and who does not want to hear it can say so', () => {
  const text = 'This notebook has not used its GPU for 2 h: move it to a CPU node, and keep all variables?';
  const idle = changes => session({ suggestion: { kind: 'move_to_cpu', since_s: NOW - 7200, text }, ...changes });
  assert.equal(statusText(idle({ protected_until_s: NOW + 9 }), NOW), '1 GPU · running, protected 0:09, GPUs not used');
  assert.equal(statusText(idle({ protected_until_s: NOW }), NOW), '1 GPU · running, may be preempted, GPUs not used');
  assert.ok(detailText(idle(), NOW).includes(text));
  assert.ok(allows(idle(), 'dismiss'));
  assert.ok(allows(idle(), 'open'));
  assert.ok(!allows(session(), 'dismiss'));
});

test('only actions that make sense are offered', () => {
  const offered = changes =>
    ['checkpoint', 'park', 'resume', 'open', 'restore'].filter(action => allows(session(changes), action));
  const checkpoint = { id: 'c', at_s: NOW, size_bytes: 1, duration_s: 1 };
  assert.deepEqual(offered({}), ['checkpoint', 'park', 'open']);
  assert.deepEqual(offered({ checkpoint }), ['checkpoint', 'park', 'open', 'restore']);
  for (const there of [{ moving: true }, { resumable: false, checkpoint: null }, { gpus: 0 }]) {
    assert.ok(!offered(there).includes('open'), JSON.stringify(there));
  }
  assert.deepEqual(offered({ state: 'parked', checkpoint }), ['resume', 'open']);
  assert.deepEqual(offered({ state: 'queued' }), []);
});

test('moments in a sentence are shown in local time', () => {
  const at = new Date(NOW * 1000);
  const utc = at.toISOString().replace('T', ' ');
  const shown = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
  const text = detailText(session({ state: 'queued', reason: `the first protection ends at ${utc}` }), NOW);
  assert.ok(text.includes(`the first protection ends at ${shown}\n`), text);
});

test('a moment of another day has its weekday, and the day begins at 00:00', () => {
  const at = (day, hour, minute) => new Date(2026, 10, day, hour, minute).getTime() / 1000;
  assert.match(clock(at(18, 0, 5), at(18, 23, 50)), /^00:05$/);
  assert.match(clock(at(19, 0, 5), at(18, 23, 50)), /^\S+ 00:05$/);
  assert.match(clock(at(18, 14, 20), at(11, 14, 20)), /^\S+ 14:20$/);
});
