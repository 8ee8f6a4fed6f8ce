// The samples that Python checks against its own classes fit the types that are made of them, and the panels draw them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { parseHTML } from 'linkedom';
import ts from 'typescript';

import { makeParts } from '../lib/lab/parts.js';
import { LabReader } from '../lib/lab/reader.js';
import { detailText } from '../lib/text.js';

const here = dirname(fileURLToPath(import.meta.url));
const read = path => JSON.parse(readFileSync(join(here, '../..', path), 'utf8'));
const types = readFileSync(join(here, '../src/answers.ts'), 'utf8');
const known = new Set([...types.matchAll(/^export interface (\w+)/gm)].map(([, name]) => name));
const all = { ...read('scheduler/gpufair/service/api_examples.json'), ...read('tests/data/lab_answers.json') };
const samples = Object.fromEntries(Object.entries(all).filter(([name]) => known.has(name)));

/** What the compiler says of samples, each a literal of its kind: a field too much is as wrong as one too little. */
function complaints(of) {
  const lines = Object.entries(of).map(([name, value]) => `export const a${name}: answers.${name} = ${JSON.stringify(value)};`);
  const name = join(here, '../src/samples.ts');
  const options = { noEmit: true, strict: true, types: [], target: ts.ScriptTarget.ES2020, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler };
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists, getSourceFile } = host;
  const text = ["import type * as answers from './answers';", ...lines].join('\n');
  Object.assign(host, {
    fileExists: path => path === name || fileExists(path),
    readFile: path => (path === name ? text : readFile(path)),
    getSourceFile: (path, ...more) => (path === name ? ts.createSourceFile(path, text, options.target) : getSourceFile(path, ...more))
  });
  return ts.getPreEmitDiagnostics(ts.createProgram([name], options, host)).map(one => ts.flattenDiagnosticMessageText(one.messageText, ' '));
}

test('samples of all kinds that the front end reads fit its types', () => {
  for (const name of ['QueuedWorkloads', 'Budgets', 'Nodes', 'Explanation', 'Coaching', 'MySessions', 'WhatIf']) {
    assert.ok(samples[name], `no sample of ${name}`);
  }
  assert.deepEqual(complaints(samples), []);
});

test('a sample that does not fit is told', () => {
  const { now_s, ...less } = samples.QueuedWorkloads;
  const wrong = {
    QueuedWorkloads: less,
    Session: { ...samples.Session, state: 'asleep' },
    Cells: { cells: [], more: true },
    OpenAllocations: { user: 1, allocations: [] }
  };
  assert.equal(complaints(wrong).length, 4);
  assert.ok(now_s > 0);
});

test('the panels draw them', async () => {
  const { window, document } = parseHTML('<html><body></body></html>');
  Object.assign(globalThis, { window, document });
  const answers = {
    mine: samples.MySessions,
    queue: samples.QueuedWorkloads,
    workloads: samples.Workloads,
    nodes: samples.Nodes,
    budgets: samples.Budgets
  };
  const reader = new LabReader(async ([, ...what]) => answers[what.join('/')] ?? null);
  const nowS = samples.QueuedWorkloads.now_s;
  const parts = makeParts(reader, { act() {}, open() {} }, () => nowS);
  const shown = {
    sessions: samples.MySessions.sessions[0].name,
    queue: samples.QueuedWorkloads.workloads[0].name,
    budgets: samples.Budgets.allocations[0].path,
    cluster: 'free'
  };
  for (const [name, text] of Object.entries(shown)) {
    await parts[name].refresh();
    assert.ok(parts[name].node.textContent.includes(text), `${name}: ${parts[name].node.textContent}`);
    assert.doesNotMatch(parts[name].node.textContent, /undefined|NaN|\[object/, name);
  }
  assert.doesNotMatch(detailText(samples.Session, nowS), /undefined|NaN|\[object/);
});
