// In another language nothing is left in English: neither in what is drawn, nor in what only the source shows.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { parseHTML } from 'linkedom';

import { messages, sources, template, untranslated } from '../messages.mjs';
import { makeParts } from '../lib/lab/parts.js';
import { LabReader } from '../lib/lab/reader.js';
import { WishForm } from '../lib/lab/wish.js';
import { detailText, lostText } from '../lib/text.js';
import { speak, trans } from '../lib/trans.js';

const NOW = 1_800_000_000;
/** A language whose letters are none of ours, by the catalogue alone: what is not in it stays as it is. */
const pseudo = () => {
  const strange = text => text.replace(/%\d|[A-Za-z]/g, c => (c[0] === '%' ? c : String.fromCodePoint(0x24b6 + (c.charCodeAt(0) & 31))));
  const known = new Set(messages().flatMap(([one, many]) => [one, many]));
  const said = text => (known.has(text) ? strange(text) : text);
  const filled = (text, args) => text.replace(/%(\d)/g, (_, place) => args[place - 1]);
  return {
    __: (text, ...args) => filled(said(text), args),
    _n: (one, many, count, ...args) => filled(said(count === 1 ? one : many), [count, ...args])
  };
};

before(() => {
  const { window, document } = parseHTML('<html><body></body></html>');
  Object.assign(globalThis, { window, document });
  // What linkedom lacks of a browser.
  Object.defineProperty(window.HTMLSelectElement.prototype, 'value', { value: '', writable: true });
  Object.defineProperty(window.HTMLInputElement.prototype, 'min', { get() { return this.getAttribute('min') ?? ''; } });
  speak(pseudo());
});
after(() => speak());

// Names are written in letters that neither language has.
const session = {
  kernel_id: '1',
  workload_id: '1',
  name: 'обучение',
  kind: 'session',
  here: true,
  path: 'обучение',
  state: 'running',
  allocation: 'зрение/ада',
  gpus: 2,
  gpu_type: null,
  node: 'узел',
  device_ids: ['0'],
  protected_until_s: NOW + 60,
  deadline_s: null,
  leaving: null,
  utilization: null,
  position: null,
  estimate_s: null,
  start_by_s: null,
  reason: '',
  withheld: '',
  held_cells: 2,
  progress: null,
  checkpoint: { id: '1', at_s: NOW - 60, size_bytes: 1e9, duration_s: 1 },
  restore_offered: false,
  resumable: true,
  on_cpu: false,
  moving: false,
  suggestion: { kind: 'move_to_cpu', since_s: NOW, text: 'сон' },
  not_moved: 'нет',
  lost: ['а', 'б', 'в', 'г'].map(name => ({ name, reason: 'файл' }))
};
const sessions = [
  session,
  ...['queued', 'starting', 'restoring', 'checkpointing', 'stopping', 'parked', 'ended'].map(state => ({ ...session, state })),
  { ...session, protected_until_s: NOW, resumable: false },
  { ...session, moving: true },
  { ...session, utilization: 0.5 },
  { ...session, state: 'checkpointing', leaving: 'rank', deadline_s: NOW + 60 },
  { ...session, on_cpu: true, position: 2 },
  { ...session, state: 'restoring', progress: 0.5 },
  { ...session, state: 'queued', position: 3, start_by_s: NOW + 60, gpus: 0 },
  { ...session, kind: 'run', state: 'queued', estimate_s: NOW + 60, held_cells: 1 }
].map((one, index) => ({ ...one, workload_id: String(index) }));
const workload = {
  id: '1',
  name: 'обучение',
  user: 'ада',
  allocation: 'зрение/ада',
  gpus: 1,
  nodes: 1,
  gpu_type: '',
  leases: [{ node: 'узел', gpus: 1 }],
  position: 1,
  estimate_s: NOW + 60,
  start_by_s: null,
  notebook: ''
};
const node = {
  name: 'узел',
  pool: 'пул',
  gpus: 8,
  gpu_type: '',
  free_gpus: 2,
  state: 'cordoned',
  workloads: ['1'],
  landings: [
    { workload: '2', gpus: 2, at_s: NOW + 60, start_by_s: null },
    { workload: '3', gpus: 1, at_s: null, start_by_s: null }
  ],
  drain: { deadline_s: NOW + 60, force: false },
  protected: [{ workload: '1', until_s: NOW + 60 }],
  closes_at_s: NOW + 60
};
const allocation = {
  path: 'зрение',
  leaf: true,
  share: 1,
  entitlement: 0.25,
  budget_gpu_s: 0,
  occupancy_gpu_s: 36_000,
  commitment_gpu_s: 900,
  owed_gpu_s: 0,
  due_gpu_s: 72_000,
  metric: 0.5,
  gpus_held: 3,
  gpus_queued: 1
};
const figures = {
  entitlement: 0.5,
  gpus_held: 4,
  delivered_gpu_s: 30,
  wait_s: { p50: 600, p90: null, max: null },
  preemptions: 0
};
const choice = { outlook: 'now', gpus: 1, nodes: 1, min_runtime_s: 900, at_s: NOW, committed_gpu_s: 900, of_budget: 0.0001, sentence: '' };
const was = { share: '1', entitlement: 0.5, members: ['бен'] };
const asked = {
  user: 'ада',
  asked_s: NOW,
  wished: { язык: '2' },
  shares: { язык: '2' },
  gpus: 6,
  why: 'статья',
  from_s: NOW,
  until_s: NOW + 60,
  decision: { by: 'ума', at_s: NOW, accepted: true, words: 'да', amended: false },
  preview: { by: 'ума', at_s: NOW },
  before: {},
  in_force_s: NOW,
  over_s: NOW,
  problem: 'нет',
  may: { decide: true, withdraw: true }
};
const ANSWERS = {
  mine: { sessions },
  queue: { now_s: NOW, workloads: [workload, { ...workload, id: '2', gpus: 8, nodes: 2, start_by_s: NOW + 60 }, { ...workload, id: '3', gpus: 0 }] },
  workloads: { workloads: [workload] },
  'workloads/1/why': {
    sentence: 'ждёт',
    start: null,
    change: { text: 'меньше' },
    holders: [true, false].map(kept => ({ workload: '2', user: 'бен', allocation: 'язык', gpus: 2, until_s: NOW + 60, protected: kept }))
  },
  'workloads/2/why': null,
  nodes: { nodes: [node, { ...node, name: 'другой', state: 'lost' }] },
  budgets: {
    window_s: 10,
    capacity_gpu_s: 320,
    allocations: [allocation, { ...allocation, path: 'язык', due_gpu_s: 0 }, { ...allocation, path: 'звук', due_gpu_s: 0, occupancy_gpu_s: 0 }]
  },
  pyramid: {
    pools: ['пруд', 'озеро'].map((pool, index) => {
      const causes = ['lost', 'cordoned', 'idle', 'held', 'not delivered'].map(cause => ({ cause, gpu_s: 60 }));
      const level = { of_gpu_s: 7200, kept_gpu_s: 3600, ratio: 0.5, losses: causes };
      const utilization = { ...level, losses: [], ratio: index ? 0.5 : null, coverage: 0.25 };
      const levels = { availability: level, occupancy: level, impact: level, utilization };
      return { pool, start_s: NOW - 60, end_s: NOW, ...levels, held_gpu_s: 9, unallocated_gpu_s: 1, switching_gpu_s: 2 };
    })
  },
  'budgets/delivered': {
    pools: [{ pool: 'пруд', allocations: [{ path: 'зрение', leaf: true, owed_gpu_s: 7200, capped_gpu_s: 60 }] }]
  },
  'budgets/over-time': {
    pools: [{ pool: 'пруд', start_s: NOW - 7200, end_s: NOW, bin_s: 3600, allocations: [{ path: 'язык', entitlement: 1, owed_gpu_s: [9, 9], charged_gpu_s: [9, 0] }] }]
  },
  history: {
    now_s: NOW,
    since_s: NOW - 3600,
    nodes: [
      {
        name: 'узел',
        gpus: 2,
        stays: Array.from({ length: 20 }, (_, at) => ({
          workload: String(at),
          user: 'ада',
          allocation: 'зрение',
          rows: [0, 1],
          from_s: NOW - 1000 + 10 * at,
          to_s: at === 19 ? null : NOW - 990 + 10 * at,
          protected: [],
          preempted_s: at % 2 ? NOW - 995 + 10 * at : null
        }))
      }
    ]
  },
  whatif: {
    now_s: NOW,
    until_s: NOW + 60,
    arrivals: 1,
    protected: 2,
    protections_kept: 1,
    allocations: ['gains', 'loses', ''].map(verdict => ({ path: 'зрение', verdict, before: figures, after: verdict ? figures : null }))
  },
  requests: {
    user: 'ада',
    owner: true,
    more: false,
    requests: ['open', 'accepted', 'in_force', 'over', 'refused', 'withdrawn', 'failed', 'open'].map((state, index) => ({ ...asked, id: index + 1, state }))
  },
  'requests/1': { ...asked, preview: { ...asked.preview, found: 'что-то' } },
  'budget-history': {
    changes: [
      { number: 2, at_s: NOW, by: 'ума', why: 'статья', request: 1, count: 3, allocations: [{ path: 'язык', change: 'changed', before: was, after: { ...was, members: [] } }] }
    ],
    more: true
  },
  coach: {
    now_s: NOW,
    asked: choice,
    choices: [
      ...['makes room', 'start by', 'estimated', 'unknown', 'refused'].map((outlook, index) => ({ ...choice, outlook, min_runtime_s: 3600 + 1800 * index })),
      { ...choice, outlook: 'makes room', at_s: null, min_runtime_s: 30, committed_gpu_s: 0 },
      { ...choice, min_runtime_s: 60, of_budget: 0.5 },
      { ...choice, min_runtime_s: 120, of_budget: null }
    ],
    advice: '',
    warnings: []
  }
};
const reader = () => new LabReader(async ([, ...what]) => ANSWERS[what.join('/')] ?? null);

/** Everything of an element that a person reads or hears. */
function shown(root) {
  const all = [root, ...root.querySelectorAll('*')];
  const attributes = all.flatMap(one => ['title', 'aria-label', 'placeholder'].map(name => one.getAttribute(name) ?? one[name] ?? ''));
  return [root.textContent, ...attributes].filter(text => typeof text === 'string' && text);
}

function assertForeign(texts, what) {
  assert.ok(texts.join('').match(/[\u24b6-\u24ea]/), `${what}: nothing in the other language`);
  for (const text of texts) {
    assert.doesNotMatch(text, /[A-Za-z]/, `${what}: ${text}`);
  }
}

const settled = () => new Promise(resolve => setTimeout(resolve, 0));

test('every part of the panel speaks the reader’s language', async () => {
  const parts = makeParts(reader(), { act() {}, open() {} }, () => NOW);
  for (const [name, part] of Object.entries(parts)) {
    await part.refresh();
    for (const button of part.node.querySelectorAll('.jp-gpufair-node')) {
      button.dispatchEvent(new window.Event('click'));
      assertForeign(shown(part.node), `${name}, a node`);
    }
    for (const card of part.node.querySelectorAll('details')) {
      card.open = true;
      card.dispatchEvent(new window.Event('toggle'));
    }
    await settled();
    for (const card of part.node.querySelectorAll('figure details')) {
      card.open = true;
      card.dispatchEvent(new window.Event('toggle'));
    }
    for (const button of part.node.querySelectorAll('.jp-gpufair-level, .jp-gpufair-track')) {
      button.dispatchEvent(new window.Event('click'));
      assertForeign(shown(part.node), `${name}, ${button.textContent}`);
    }
    assertForeign([part.title, ...shown(part.node)], name);
  }
});

test('an empty lab speaks it too', async () => {
  const empty = { ...ANSWERS, mine: { sessions: [] }, queue: { now_s: NOW, workloads: [] } };
  const parts = makeParts(new LabReader(async ([, ...what]) => empty[what.join('/')]), { act() {}, open() {} }, () => NOW);
  for (const name of ['sessions', 'queue']) {
    await parts[name].refresh();
    assertForeign(shown(parts[name].node), name);
  }
  await assert.rejects(new LabReader(async () => null).budgets(), error => assertForeign([error.message], 'an old server') ?? true);
});

test('what-if tells its findings in it', async () => {
  const part = makeParts(reader(), { act() {}, open() {} }, () => NOW).whatif;
  await part.refresh();
  const [attempt] = part.node.querySelectorAll('button');
  attempt.dispatchEvent(new window.Event('click'));
  assertForeign(shown(part.node), 'nothing changed');
  part.node.querySelector('input').value = '3';
  attempt.dispatchEvent(new window.Event('click'));
  assertForeign(shown(part.node), 'while it plays');
  await settled();
  assert.equal(part.node.querySelectorAll('tbody tr').length, 3);
  assertForeign(shown(part.node), 'a finding');
});

test('the form for a request tells what each choice means in it', async () => {
  const profile = { name: 'а', display_name: 'один', gpus: 1, nodes: 1, gpu_type: '', allocation: '', min_runtime_s: null };
  const form = new WishForm(reader(), [profile], ['зрение']);
  const choices = () => form.node.querySelectorAll('input[type=radio]').length;
  for (const end = Date.now() + 30_000; !choices() && Date.now() < end; ) {
    await settled();
  }
  assert.equal(choices(), 9);
  assertForeign(shown(form.node), 'wish');
});

test('a session says all that is known of it in that language', () => {
  for (const one of sessions) {
    assertForeign([detailText(one, NOW), lostText(one)], `${one.state}`);
  }
});

test('a literal that a person would read goes through trans', () => {
  const missed = sources().flatMap(name => untranslated(name));
  assert.deepEqual(missed, [], 'write trans.__(…), or trans._n(…) where a number decides the form');
});

test('the search for such literals finds each kind', () => {
  const found = source => untranslated('x.ts', source).length;
  for (const source of [
    "press('Try', act)",
    "write(node, busy ? 'Playing' : '')",
    "write(node, `${count} waiting`)",
    "element('p', {}, 'Nobody')",
    "element('p', { 'aria-label': 'Queue' })",
    "node.textContent = 'Queue'",
    "node.setAttribute('aria-label', a || 'Queue')",
    "attribute(node, 'title', 'Queue')",
    "commands.addCommand(X, { label: () => 'Run' })",
    "Notification.error('No')",
    "throw new Error('No')"
  ]) {
    assert.equal(found(source), 1, source);
  }
  for (const source of [
    "press(trans.__('Try'), act)",
    "write(node, trans._n('%1 cell', '%1 cells', 2))",
    "element('p', { class: 'jp-gpufair', role: 'status' }, name)",
    "console.warn('gpufair: not read', error)",
    "node.dataset.state = 'running'"
  ]) {
    assert.equal(found(source), 0, source);
  }
});

test('the template has each text once, with its plural and where it is said', () => {
  const text = template();
  assert.match(text, /#: labextension\/src\/text\.ts:\d+\nmsgid "%1 cell held"\nmsgid_plural "%1 cells held"\nmsgstr\[0\] ""\nmsgstr\[1\] ""/);
  const ids = [...text.matchAll(/^msgid (".+")$/gm)].map(([, id]) => id);
  assert.equal(new Set(ids).size, ids.length);
  for (const [one, many] of messages()) {
    const places = written => [...new Set(written.match(/%\d/g))].sort();
    if (many) {
      assert.deepEqual(places(many).filter(place => place !== '%1'), places(one).filter(place => place !== '%1'), one);
    }
  }
});

test('without a translator the text is what is written, with its places filled', () => {
  speak();
  assert.equal(trans.__('%1 of %2, 100 %', 3, 4), '3 of 4, 100 %');
  assert.equal(trans._n('%1 cell of %2', '%1 cells of %2', 1, 'x'), '1 cell of x');
  assert.equal(trans._n('%1 cell of %2', '%1 cells of %2', 0, 'x'), '0 cells of x');
  speak(pseudo());
});
