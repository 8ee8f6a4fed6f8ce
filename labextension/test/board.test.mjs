// What operators tell everybody, in words.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { newsOf } from '../lib/lab/board.js';

const NOW = 1_800_000_000;
const said = (changes = {}) => ({
  id: 3,
  state: 'current',
  severity: 'warning',
  text: 'The storage is slow.',
  link: 'https://status.example.org/',
  from_s: NOW,
  until_s: null,
  by: 'olga',
  made_s: NOW - 60,
  withdrawn_by: '',
  withdrawn_s: null,
  ...changes
});
const told = (announcements, maintenance = []) => ({ announcements, maintenance, more: false });

test('an announcement has its severity in words, its link, and its end', () => {
  const [open, ending] = newsOf(told([said(), said({ id: 4, severity: 'critical', until_s: NOW + 60 })]), NOW);
  assert.deepEqual([open.label, open.severity, open.link, open.until], ['Warning', 'warning', 'https://status.example.org/', '']);
  assert.equal(ending.label, 'Important');
  assert.match(ending.until, /^until \d/);
  assert.notEqual(open.key, ending.key);
});

test('a link that is no address of the web is none', () => {
  assert.equal(newsOf(told([said({ link: 'javascript:alert(1)' })]), NOW)[0].link, '');
});

test('another announcement under the same number was not put aside', () => {
  const keys = [said(), said({ made_s: NOW })].map(one => newsOf(told([one]), NOW)[0].key);
  assert.notEqual(keys[0], keys[1]);
});

test('maintenance is told beside, with the first nodes', () => {
  const plan = (...nodes) => newsOf(told([], [{ id: 'disks', nodes, at_s: NOW + 60 }]), NOW)[0];
  assert.match(plan('n1').text, /^n1 closes at \d/);
  assert.match(plan('n1', 'n2', 'n3', 'n4', 'n5', 'n6').text, /^n1, n2, n3, n4 and 2 more close at \d/);
  assert.equal(plan('n1').label, 'Maintenance');
});
