// The lab in words and colours: what the side panel says.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { gradient } from '../lib/lab/cluster.js';
import { LabReader } from '../lib/lab/reader.js';
import { Teams, teamOf } from '../lib/lab/teams.js';
import { applicable, asked, cost, duration, entitledGpus, explained, fares, givenUp, gpuTime, inPools, nodeText, outlook, spent, standing, when } from '../lib/lab/words.js';

const NOW = 1_800_000_000;
const workload = (changes = {}) => ({
  id: '3f2a81c0-1',
  state: 'queued',
  name: '',
  kind: 'session',
  user: 'ada',
  allocation: 'vision/ada',
  gpus: 1,
  nodes: 1,
  gpu_type: '',
  pools: ['default'],
  min_runtime_s: 3600,
  leases: [],
  protected_until_s: null,
  position: 1,
  estimate_s: null,
  start_by_s: null,
  waits_for: '',
  notebook: '/home/ada/train.ipynb',
  ...changes
});
const node = (changes = {}) => ({
  name: 'node-a',
  pool: 'default',
  gpus: 8,
  gpu_type: 'H200',
  free_gpus: 2,
  state: 'ready',
  workloads: [],
  landings: [],
  drain: null,
  protected: [],
  closes_at_s: null,
  ...changes
});
const allocation = (changes = {}) => ({
  path: 'vision',
  leaf: true,
  share: 1,
  entitlement: 0.25,
  budget_gpu_s: 0,
  occupancy_gpu_s: 36_000,
  commitment_gpu_s: 0,
  owed_gpu_s: 0,
  due_gpu_s: 72_000,
  metric: 0.5,
  gpus_held: 3,
  gpus_queued: 0,
  ...changes
});

test('where there are several pools, each is told of', () => {
  const parts = [
    { pool: 'default', gpus_held: 3, gpus_queued: 0 },
    { pool: 'far', gpus_held: 0, gpus_queued: 2 }
  ];
  assert.equal(inPools(allocation({ pools: parts })), 'default: 3 held · far: 0 held, 2 wanted');
  assert.equal(inPools(allocation({ pools: parts.slice(0, 1) })), '');
  assert.equal(nodeText(node({ pool: 'far' }), [], NOW)[1], 'in far');
  const why = { sentence: 'It waits.', holders: [], change: null, pool: 'far' };
  assert.deepEqual(explained(why, NOW), ['In far: It waits.']);
});

test('what is asked for names nodes, type and CPU work', () => {
  assert.equal(asked(workload()), '1 GPU');
  assert.equal(asked(workload({ gpus: 8, nodes: 2, gpu_type: 'H200' })), '2 × 8 GPUs (H200)');
  assert.equal(asked(workload({ gpus: 0 })), 'CPU');
});

test('a promise comes before an estimate', () => {
  assert.equal(when(workload(), NOW), '');
  assert.match(when(workload({ estimate_s: NOW + 60 }), NOW), /^starts about \d\d:\d\d$/);
  assert.match(when(workload({ estimate_s: NOW + 60, start_by_s: NOW + 90 }), NOW), /^starts by \d\d:\d\d$/);
});

test('an allocation says what it holds, wants and has used', () => {
  assert.equal(entitledGpus(allocation(), { window_s: 10, capacity_gpu_s: 320, allocations: [] }), 8);
  assert.equal(standing(allocation(), 8), '3 of 8 GPUs');
  assert.equal(standing(allocation({ gpus_queued: 4 }), 2.66), '3 of 2.7 GPUs, 4 wanted');
  assert.equal(spent(allocation()), '10 GPU-h of 20 GPU-h used');
  assert.equal(spent(allocation({ due_gpu_s: 0 })), '10 GPU-h used, nothing due');
  assert.equal(spent(allocation({ commitment_gpu_s: 7_200 })), '10 GPU-h of 20 GPU-h used, 2.0 GPU-h committed');
});

test('GPU time has the unit that a person would choose', () => {
  assert.equal(gpuTime(0), '0 GPU-s');
  assert.equal(gpuTime(900), '15 GPU-min');
  assert.equal(gpuTime(9_000), '2.5 GPU-h');
  assert.equal(gpuTime(1_234_567), '343 GPU-h');
});

test('a node says who is on it, until when, and what is kept', () => {
  const here = [
    workload({ id: 'a', leases: [{ node: 'node-a', gpus: 4 }] }),
    workload({ id: 'b', name: 'gang', leases: [{ node: 'node-a', gpus: 1 }, { node: 'node-b', gpus: 1 }] })
  ];
  const lines = nodeText(
    node({
      state: 'cordoned',
      protected: [{ workload: 'a', until_s: NOW + 125 }],
      landings: [{ workload: '77777777-x', gpus: 2, at_s: null, start_by_s: null }]
    }),
    here,
    NOW
  );
  assert.deepEqual(lines, [
    'node-a: 2 of 8 GPUs (H200) free',
    'cordoned: nothing new is put on it',
    '4 GPUs: train.ipynb, ada (vision/ada), protected 2:05',
    '1 GPU: gang, ada (vision/ada), may be preempted',
    '2 GPUs kept for 77777777'
  ]);
});

test('a reason ends with the smallest change', () => {
  const why = {
    sentence: 'It waits until 2027-01-15 08:00:00Z.',
    start: null,
    change: { text: 'ask for 1 GPU' },
    holders: [{ workload: 'a', user: 'ben', allocation: 'language', gpus: 2, until_s: null, protected: true }]
  };
  const [sentence, holder, change] = explained(why, NOW);
  assert.match(sentence, /^It waits until .*\d\d:\d\d\.$/);
  assert.ok(!sentence.includes('Z'), 'the reader’s own time');
  assert.equal(holder, '2 GPUs: ben (language)');
  assert.equal(change, 'Smallest change that would start it now: ask for 1 GPU');
});

test('a change is offered to whoever may make it, with what is given up', () => {
  const why = {
    sentence: '',
    start: null,
    holders: [],
    mine: true,
    change: { text: 'ask for 1 GPU', amend: { gpus: 1 }, costs: ['it gives up its landing at 2027-01-15 08:00:00Z'] }
  };
  assert.ok(applicable(why));
  assert.match(givenUp(why, NOW), /^But it gives up its landing at .*\d\d:\d\d\.$/);
  assert.ok(!applicable({ ...why, mine: false }), 'somebody else’s');
  assert.ok(!applicable({ ...why, change: { text: 'ask for 1 GPU' } }), 'an older service');
  assert.ok(!applicable({ ...why, change: null }));
  assert.ok(!applicable(null));
  assert.equal(givenUp({ ...why, change: { text: 'x', amend: { gpus: 1 } } }, NOW), '');
});

test('the bar of a node has one hard stop for each piece', () => {
  assert.equal(gradient([['red', 2], ['grey', 0], ['blue', 6]], 8), 'linear-gradient(90deg, red 0% 25%, blue 25% 100%)');
  assert.equal(gradient([], 1), 'none');
});

test('teams keep their colours whatever is drawn first', () => {
  const one = new Teams();
  one.know(['vision/a', 'language', 'vision/b'].map(teamOf));
  const other = new Teams();
  other.know(['language', 'vision']);
  assert.deepEqual(one.names, ['language', 'vision']);
  assert.equal(one.colour('vision'), other.colour('vision'));
  assert.notEqual(one.colour('vision'), one.colour('language'));
});

test('a choice says when it starts and what it costs', () => {
  const choice = (changes = {}) => ({
    outlook: 'now',
    gpus: 8,
    nodes: 1,
    min_runtime_s: 3600,
    at_s: null,
    committed_gpu_s: 28_800,
    of_budget: 0.031,
    sentence: '',
    ...changes
  });
  assert.equal(outlook(choice(), NOW), 'starts now');
  assert.match(outlook(choice({ outlook: 'estimated', at_s: NOW + 60 }), NOW), /^starts about \d\d:\d\d$/);
  assert.match(outlook(choice({ outlook: 'start by', at_s: NOW + 60 }), NOW), /^starts by \d\d:\d\d$/);
  assert.equal(outlook(choice({ outlook: 'unknown' }), NOW), 'nobody can say when it starts');
  assert.equal(cost(choice()), '8.0 GPU-h, 3.1 % of the budget');
  assert.equal(cost(choice({ of_budget: 0.0000066 })), '8.0 GPU-h, under 0.1 % of the budget');
  assert.equal(cost(choice({ committed_gpu_s: 0, of_budget: null })), 'free of charge');
});

test('durations are said as people say them', () => {
  assert.deepEqual([8, 900, 3600, 5400, 28_800].map(duration), ['8 s', '15 min', '1 h', '1 h 30 min', '8 h']);
});

test('what would be stands beside what is, once where both are the same', () => {
  const figures = (changes = {}) => ({
    entitlement: 0.5,
    gpus_held: 4,
    delivered_gpu_s: 36_000,
    wait_s: { p50: 600, p90: null, max: null },
    preemptions: 0,
    ...changes
  });
  const after = figures({ entitlement: 0.75, delivered_gpu_s: 72_000, wait_s: { p50: null, p90: null, max: null } });
  assert.deepEqual(fares(figures(), after), ['50.0 % → 75.0 %', '4.0', '10 GPU-h → 20 GPU-h', '10 min → –', '0']);
});

test('of thousands of workloads only what is shown is asked for', async () => {
  const asked = [];
  const holder = workload({ leases: [{ node: 'node-a', gpus: 1 }] });
  const reader = new LabReader(async (path, _, query) => {
    asked.push([path.join('/'), query]);
    return { now_s: NOW, workloads: [holder, workload()] };
  });
  await reader.queue();
  // An older service does not know the question and tells of all.
  assert.deepEqual(await reader.holders(), [holder]);
  const fields = 'id,name,user,allocation,gpus,nodes,gpu_type,pools,leases,position,estimate_s,start_by_s,notebook';
  assert.deepEqual(asked, [
    ['lab/queue', { fields }],
    ['lab/workloads', { holding: 'true', fields }]
  ]);
});
