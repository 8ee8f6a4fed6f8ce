// The document behind the page. Columns of numbers are 32-bit differences, bytes sorted by place, deflated
// (encode.py is the other half); texts are deflated JSON. Nothing of it is ever parsed as markup.

async function inflated(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function summed(bytes, count) {
  const numbers = new Int32Array(count);
  let sum = 0;
  for (let at = 0; at < count; at++) {
    sum += bytes[at] | (bytes[count + at] << 8) | (bytes[2 * count + at] << 16) | (bytes[3 * count + at] << 24);
    numbers[at] = sum;
  }
  return numbers;
}

async function decoded(value) {
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.z === 'string') return summed(await inflated(value.z), value.n);
  if (typeof value.t === 'string') return JSON.parse(new TextDecoder().decode(await inflated(value.t)));
  if (Array.isArray(value)) return Promise.all(value.map(decoded));
  const pairs = Object.entries(value).map(async ([key, part]) => [key, await decoded(part)]);
  return Object.fromEntries(await Promise.all(pairs));
}

// Who is at which place of a list of lists, as [starts, members]: members of i are members[starts[i] .. starts[i + 1]].
function grouped(count, keysOf, total) {
  const starts = new Int32Array(count + 1);
  for (let one = 0; one < total; one++) keysOf(one, (key) => starts[key + 1]++);
  for (let key = 0; key < count; key++) starts[key + 1] += starts[key];
  const members = new Int32Array(starts[count]);
  const next = starts.slice();
  for (let one = 0; one < total; one++) keysOf(one, (key) => (members[next[key]++] = one));
  return [starts, members];
}

// Bars with the rows they stand on: `byRow` in the order of time, because bars come in the order of grants.
function onRows(spans, rows) {
  const count = spans.runs.length;
  const firstRun = new Int32Array(count + 1);
  for (let one = 0; one < count; one++) firstRun[one + 1] = firstRun[one] + spans.runs[one];
  const eachRow = (one, tell) => {
    for (let run = firstRun[one]; run < firstRun[one + 1]; run++) {
      for (let row = spans.first[run]; row < spans.first[run] + spans.count[run]; row++) tell(row);
    }
  };
  return { ...spans, size: count, firstRun, byRow: grouped(rows, eachRow, count) };
}

function laidOut(data) {
  const firsts = new Int32Array(data.nodes.gpus.length + 1);
  data.nodes.gpus.forEach((gpus, node) => (firsts[node + 1] = firsts[node] + gpus));
  const rows = firsts[firsts.length - 1];
  const closed = onRows(data.closed, rows);
  const policies = data.policies.map((policy) => {
    const bars = onRows(policy.bars, rows);
    bars.end = bars.start.map((start, bar) => start + bars.span[bar]);
    bars.protectedEnd = bars.start.map((start, bar) => Math.min(start + bars.protected[bar], bars.end[bar]));
    bars.gpus = new Int32Array(bars.size);
    for (let bar = 0; bar < bars.size; bar++) {
      for (let run = bars.firstRun[bar]; run < bars.firstRun[bar + 1]; run++) bars.gpus[bar] += bars.count[run];
    }
    const byJob = grouped(data.jobs.id.length, (bar, tell) => tell(bars.job[bar]), bars.size);
    return { ...policy, bars, byJob, landings: onRows(policy.landings, rows) };
  });
  return { ...data, firsts, rows, closed, policies };
}
