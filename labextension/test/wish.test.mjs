// The form of a wish: what is chosen stays chosen, whenever answers come.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { parseHTML } from 'linkedom';

import { WishForm } from '../lib/lab/wish.js';

const PROFILES = [
  { name: 'one', display_name: '', allocation: 'language', gpus: 1, nodes: 1, min_runtime_s: 8 },
  { name: 'vision', display_name: '', allocation: 'vision', gpus: 1, nodes: 1, min_runtime_s: 2 }
];
let asked = [];
let due = [];

before(() => {
  const { window, document } = parseHTML('<html><body></body></html>');
  Object.assign(globalThis, { window, document });
  // What linkedom leaves out.
  Object.defineProperty(window.HTMLSelectElement.prototype, 'value', {
    get() {
      return this.chosen ?? '';
    },
    set(chosen) {
      this.chosen = chosen;
    }
  });
  Object.defineProperty(window.HTMLInputElement.prototype, 'min', {
    get() {
      return this.getAttribute('min');
    }
  });
  window.setTimeout = act => due.push(act);
  globalThis.clearTimeout = () => (due = []);
});

function made(start) {
  [asked, due] = [[], []];
  const coach = (profile, wish, spans) =>
    new Promise((resolve, reject) => asked.push({ profile, wish, spans, resolve, reject }));
  return new WishForm({ coach }, PROFILES, ['language', 'vision'], start);
}

/** The pause after typing is over. */
const paused = () => due.splice(0).forEach(act => act());
const settled = () => new Promise(resolve => setImmediate(resolve));
const choice = span => ({
  min_runtime_s: span, gpus: 1, nodes: 1, gpu_type: '', outlook: 'now', at_s: 0, right: null, sentence: '', committed_gpu_s: 3600, of_budget: null
});

async function answer(request) {
  request.resolve({ asked: choice(request.spans[0]), choices: request.spans.map(choice), warnings: [], advice: request.profile, now_s: 0 });
  await settled();
}

const offered = form => [...form.node.querySelectorAll('fieldset input')].map(one => Number(one.value));
const button = (form, span) => form.node.querySelector(`fieldset input[value="${span}"]`);

function choose(form, span) {
  button(form, span).dispatchEvent(new window.Event('change'));
}

function take(form, profile) {
  const select = form.node.querySelector('select');
  select.value = profile;
  select.dispatchEvent(new window.Event('change'));
}

test('an answer for an earlier profile is not offered, whenever it comes', async () => {
  const form = made();
  paused();
  take(form, 'vision');
  await answer(asked[0]);
  assert.deepEqual(offered(form), [], 'the new profile has not even been asked about');
  paused();
  assert.equal(asked[1].profile, 'vision');
  await answer(asked[1]);
  assert.deepEqual(offered(form), [2, 900, 3600, 7200, 14_400, 28_800]);
  choose(form, 900);
  assert.deepEqual(form.chosen.wish, { min_runtime_s: 900 });
  asked[0].reject(new Error('late'));
  await settled();
  assert.equal(offered(form).length, 6);
});

test('choices of the profile before cannot be chosen for the next one', async () => {
  const form = made();
  paused();
  await answer(asked[0]);
  assert.deepEqual(offered(form).slice(0, 2), [8, 900]);
  take(form, 'vision');
  assert.deepEqual(offered(form), []);
  assert.equal(form.node.querySelector('fieldset').hidden, true);
  assert.deepEqual(form.chosen.wish, {});
});

test('an answer leaves each choice where it is, so that no click is lost, and keeps what is chosen', async () => {
  const form = made();
  paused();
  await answer(asked[0]);
  const before = button(form, 900);
  form.node.querySelector('input[type=number]').dispatchEvent(new window.Event('input'));
  paused();
  choose(form, 900);
  await answer(asked[1]);
  assert.equal(button(form, 900), before);
  assert.equal(before.checked, true);
  assert.deepEqual(form.chosen.wish, { min_runtime_s: 900 });
});
