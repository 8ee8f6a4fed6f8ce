import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Latest } from '../lib/latest.js';

test('a late answer undoes no newer one', () => {
  const latest = new Latest();
  const [first, second, third] = [latest.ask(), latest.ask(), latest.ask()];
  assert.equal(first(), true);
  assert.equal(third(), true);
  assert.equal(second(), false);
  assert.equal(latest.ask()(), true);
});
