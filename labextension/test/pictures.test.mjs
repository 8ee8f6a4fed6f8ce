// Pictures over time: what is drawn where, and what those are told who do not see it.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { parseHTML } from 'linkedom';

import { averages, told } from '../lib/lab/course.js';
import { causes, exposed, ratio, runs, stands } from '../lib/lab/figures.js';
import { nodeTold, staysTold } from '../lib/lab/history.js';
import { makeParts } from '../lib/lab/parts.js';
import { LabReader } from '../lib/lab/reader.js';

const NOW = 1_800_000_000;

before(() => {
  const { window, document } = parseHTML('<html><body></body></html>');
  Object.assign(globalThis, { window, document });
  // What linkedom lacks of a browser.
  Object.defineProperty(window.HTMLSelectElement.prototype, 'value', { value: '', writable: true });
  Object.defineProperty(window.HTMLInputElement.prototype, 'min', { get() { return this.getAttribute('min') ?? ''; } });
});

const level = (changes = {}) => ({ of_gpu_s: 7200, kept_gpu_s: 3600, ratio: 0.5, losses: [], ...changes });
const pool = (changes = {}) => ({
  pool: 'default',
  start_s: NOW - 7200,
  end_s: NOW,
  availability: level({ losses: [{ cause: 'lost', gpu_s: 3600 }, { cause: 'cordoned', gpu_s: 0 }] }),
  occupancy: level({ losses: [{ cause: 'idle', gpu_s: 3600 }] }),
  impact: level({ losses: [{ cause: 'not delivered', gpu_s: 3600 }] }),
  utilization: level({ coverage: 0.25 }),
  held_gpu_s: 3600,
  unallocated_gpu_s: 60,
  switching_gpu_s: 120,
  ...changes
});
const stay = (changes = {}) => ({
  workload: 'w1',
  user: 'ada',
  allocation: 'vision/ada',
  rows: [0],
  from_s: NOW - 3600,
  to_s: null,
  protected: [],
  preempted_s: null,
  ...changes
});
const seen = { now_s: NOW, since_s: NOW - 3600, nodes: [] };

test('what nobody measured is unknown, never 0', () => {
  assert.equal(ratio(level()), '50.0 %');
  assert.equal(ratio(level({ ratio: 0 })), '0.0 %');
  assert.equal(ratio(level({ ratio: null })), 'unknown');
  const unknown = pool({ utilization: level({ ratio: null, of_gpu_s: 0, kept_gpu_s: 0 }) });
  assert.deepEqual(causes('utilization', unknown, []), ['No node has measured it: it is unknown, not 0.']);
  assert.deepEqual(causes('utilization', pool(), []), ['1.0 GPU-h held, but not in use', 'measured on 25.0 % of what was held']);
});

test('each level names the causes of its loss, and impact those who missed most', () => {
  assert.deepEqual(causes('availability', pool(), []), ['1.0 GPU-h on nodes that did not answer']);
  assert.deepEqual(causes('availability', pool({ availability: level() }), []), ['Nothing was lost.']);
  assert.equal(causes('occupancy', pool(), [])[0], '1.0 GPU-h idle');
  const missed = (path, owed, capped, leaf = true) => ({ path, leaf, owed_gpu_s: owed, capped_gpu_s: capped });
  const all = [missed('a', 7200, 0, false), missed('a/x', 7200, 3600), missed('a/y', 7200, 0), missed('b', 60, 60)];
  assert.deepEqual(causes('impact', pool(), all), ['1.0 GPU-h owed, but not delivered', 'a/y: 2.0 GPU-h of 2.0 GPU-h', 'a/x: 1.0 GPU-h of 2.0 GPU-h']);
});

test('what could be preempted is what protections leave of a stay', () => {
  assert.deepEqual(exposed(stay({ from_s: 0 }), 100), [[0, 100]]);
  assert.deepEqual(exposed(stay({ from_s: 0, protected: [[0, 40]] }), 100), [[40, 100]]);
  assert.deepEqual(exposed(stay({ from_s: 0, protected: [[0, 40], [60, 200]] }), 100), [[40, 60]]);
  assert.deepEqual(exposed(stay({ from_s: 0, protected: [[0, 200]] }), 100), []);
  assert.deepEqual(exposed(stay({ from_s: 0, protected: [[0, 40], [150, 200]] }), 100), [[40, 100]]);
  assert.deepEqual(runs([0, 1, 2, 5, 7, 8]), [[0, 3], [5, 1], [7, 2]]);
});

test('a node says how much it was held, and who was there last', () => {
  const gone = stay({ from_s: NOW - 7200, to_s: NOW - 1800, rows: [1], user: 'ben', allocation: 'language', preempted_s: NOW - 1810 });
  const node = { name: 'n1', gpus: 2, stays: [stay(), gone] };
  assert.equal(nodeTold(node, seen), 'n1: 2 GPUs, held for 75.0 % of the time, 1 preemption');
  const [first, second] = staysTold(node, seen);
  assert.match(first, /^1 GPU: ada \(vision\/ada\), since \S+/);
  assert.match(second, /^1 GPU: ben \(language\), .* to .*, preempted at/);
});

test('an average is of the time that a bin has had so far', () => {
  const course = { path: 'a', entitlement: 1, owed_gpu_s: [3600, 900], charged_gpu_s: [7200, 0] };
  assert.deepEqual(averages(course.owed_gpu_s, { start_s: 0, end_s: 4500, bin_s: 3600 }), [1, 1]);
  assert.equal(told(course), '2.0 GPU-h charged, 1.3 GPU-h owed');
  assert.equal(stands({ metric: 0.5, commitment_gpu_s: 3600 }), 'metric 0.500: under-served · 1.0 GPU-h committed');
  assert.equal(stands({ metric: null, commitment_gpu_s: 0 }), 'no metric: nothing is due · 0 GPU-s committed');
});

test('pictures of the past are asked for while they are open, and not at each event', async t => {
  const asked = [];
  let now = NOW;
  const allocation = { path: 'a', leaf: true, share: 1, entitlement: 1, occupancy_gpu_s: 0, commitment_gpu_s: 0, due_gpu_s: 0, metric: null, gpus_held: 0, gpus_queued: 0 };
  const answers = {
    budgets: { window_s: 10, capacity_gpu_s: 10, allocations: [allocation] },
    nodes: { nodes: [] },
    workloads: { workloads: [] },
    'budgets/over-time': { pools: [{ pool: 'default', start_s: NOW - 7200, end_s: NOW, bin_s: 3600, allocations: [{ path: 'a', entitlement: 1, owed_gpu_s: [9, 9], charged_gpu_s: [3, 0] }] }] },
    history: { ...seen, nodes: [{ name: 'n1', gpus: 4, stays: [stay({ rows: [0, 1, 3], protected: [[NOW - 3600, NOW - 1800]], preempted_s: NOW - 900 })] }] }
  };
  const reader = new LabReader(async ([, ...what], _, query) => {
    asked.push([what.join('/'), query]);
    return answers[what.join('/')] ?? null;
  });
  const { budgets, cluster } = makeParts(reader, { act() {}, open() {} }, () => now);
  const times = what => asked.filter(([name]) => name === what).length;
  const open = async (part, kind) => {
    const card = part.node.querySelector(kind);
    card.open = true;
    card.dispatchEvent(new window.Event('toggle'));
    await new Promise(resolve => setTimeout(resolve, 0));
    return card;
  };
  await budgets.refresh();
  await cluster.refresh();
  assert.equal(times('history') + times('budgets/over-time'), 0);
  const course = await open(budgets, '.jp-gpufair-course');
  assert.deepEqual(asked.at(-1), ['budgets/over-time', { allocation: 'a', bins: '56' }]);
  assert.equal(course.querySelectorAll('.jp-gpufair-charged').length, 2);
  const table = await open(budgets, '.jp-gpufair-course details');
  assert.equal(table.querySelectorAll('tbody tr').length, 2);
  const [pool] = answers['budgets/over-time'].pools;
  pool.allocations[0].charged_gpu_s = [7200, 0];
  const later = Date.now() + 61_000;
  t.mock.method(Date, 'now', () => later);
  await budgets.refresh(); // a minute later: what somebody reads, or has the focus in, stays where it is
  await new Promise(resolve => setTimeout(resolve, 0));
  assert.equal(course.querySelector('details'), table);
  assert.match(table.querySelector('tbody').textContent, /2\.0 GPU-h/);
  const past = await open(cluster, '.jp-gpufair-past');
  assert.deepEqual(asked.at(-1), ['history', { hours: '6' }]);
  const styles = kind => [...past.querySelectorAll(kind)].map(one => one.getAttribute('style'));
  assert.deepEqual(styles('.jp-gpufair-stay').map(style => style.slice(0, 22)), ['--row: 0; --count: 2; ', '--row: 3; --count: 1; ']);
  assert.deepEqual(styles('.jp-gpufair-exposed').map(style => style.slice(22)), ['left: 50%; width: 50%', 'left: 50%; width: 50%']);
  assert.deepEqual(styles('.jp-gpufair-gone').map(style => style.slice(22)), ['left: 75%', 'left: 75%']);
  await cluster.refresh();
  assert.equal(times('history'), 1);
  now += 20;
  await cluster.refresh();
  assert.equal(times('history'), 2);
});
