// The card: who holds the GPU under the pointer, and why it left.

const LEFT = {
  unallocated: 'it ran unallocated, and allocated work needed the GPUs',
  rank: 'an allocation that is better served last needed the GPUs',
  priority: 'work of higher priority of its own allocation needed the GPUs',
  'take-limit': 'its allocation held more than it may while another one is hungry',
  debug: 'a debug run started under the debug right',
  landing: 'the time of a landing had come',
  idle: 'it ran no cell for long; its GPUs were returned',
  park: 'its owner parked it',
  drain: 'its node was being emptied, or was lost',
  forced: 'its node had to be empty, by order of an operator',
  moved: 'it was moved off a node that was being emptied',
  consolidation: 'it was moved to another node, to join free GPUs',
  shutdown: 'the service ended',
};
const QUIET = new Set(['idle', 'park', 'shutdown']); // leaving that took nothing from anybody

function nodeOf(data, row) {
  let low = 0;
  let high = data.nodes.names.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (data.firsts[middle] <= row) low = middle;
    else high = middle - 1;
  }
  return low;
}

// The bar of a row at an instant, or -1.
function barAt(policy, row, tick) {
  const at = firstAfter(policy.bars, row, tick);
  const bar = at < policy.bars.byRow[0][row + 1] ? policy.bars.byRow[1][at] : -1;
  return bar >= 0 && policy.bars.start[bar] <= tick ? bar : -1;
}

function landingAt(policy, row, tick) {
  const { byRow, start, end } = policy.landings;
  for (let at = byRow[0][row]; at < byRow[0][row + 1]; at++) {
    const one = byRow[1][at];
    if (start[one] <= tick && tick < end[one]) return one;
  }
  return -1;
}

function jobName(data, job) {
  return data.jobs.name[job] || data.jobs.id[job];
}

function shapeOf(data, job) {
  const { nodes, per_node: each, types, type } = data.jobs;
  const gpus = `${each[job]} GPU${each[job] === 1 ? '' : 's'}${types[type[job]] ? ` (${types[type[job]]})` : ''}`;
  return nodes[job] === 1 ? gpus : `${nodes[job]} nodes × ${gpus}`;
}

function whyItLeft(data, policy, bar) {
  const { flags, reason, beneficiary } = policy.bars;
  if (flags[bar] & 1) return 'it still ran at the end';
  if (flags[bar] & 4) return 'its node was lost';
  if (reason[bar] < 0) return 'it ended by itself';
  const right = data.reasons[reason[bar]];
  const whom = beneficiary[bar] < 0 ? '' : `; for ${jobName(data, beneficiary[bar])}`;
  return `${LEFT[right] ?? right}${whom}`;
}

function barFacts(data, policy, bar) {
  const { bars } = policy;
  const job = bars.job[bar];
  const seconds = (ticks) => span(ticks * data.tick_s);
  const free = data.jobs.min_runtime_s[job] === 0;
  const facts = [
    ['Job', data.jobs.id[job]],
    ['User', data.jobs.users[data.jobs.user[job]]],
    ['Allocation', data.tree.paths[data.jobs.path[job]]],
    ['Kind', data.kinds[data.jobs.kind[job]] + (free ? ', unallocated' : '')],
    ['Shape', shapeOf(data, job)],
    ['Held', `${clock(data, bars.start[bar])} – ${clock(data, bars.end[bar])} (${seconds(bars.span[bar])})`],
    ['Protected', free ? 'never: it runs unallocated' : `until ${clock(data, bars.start[bar] + bars.protected[bar])}`],
    ['Waited', seconds(bars.waited[bar]) + (bars.flags[bar] & 2 ? ', after its user came back' : '')],
    ['Left', whyItLeft(data, policy, bar)],
  ];
  if (bars.lost[bar]) facts.push(['Lost', `${seconds(bars.lost[bar])} of work`]);
  return { title: jobName(data, job), job, facts };
}

function landingFacts(data, policy, one) {
  const { landings } = policy;
  const job = landings.job[one];
  const facts = [
    ['Kept free for', data.jobs.id[job]],
    ['Allocation', data.tree.paths[data.jobs.path[job]]],
    ['Shape', shapeOf(data, job)],
    ['Granted', clock(data, landings.start[one])],
    ['Lands', clock(data, landings.at[one])],
    ['Starts by', clock(data, landings.start_by[one])],
    ['Over', clock(data, landings.end[one])],
  ];
  if (landings.dropped[one]) facts.push(['Lost', landings.dropped[one]]);
  return { title: `Landing of ${jobName(data, job)}`, job, facts };
}

function factsAt(data, policy, row, tick) {
  const bar = barAt(policy, row, tick);
  const node = nodeOf(data, row);
  const where = `${data.nodes.names[node]}, GPU ${row - data.firsts[node]}`;
  const named = (found) => ({ ...found, facts: [...found.facts, ['Here', where]] });
  if (bar >= 0) return named(barFacts(data, policy, bar));
  const landing = landingAt(policy, row, tick);
  if (landing >= 0) return named(landingFacts(data, policy, landing));
  const gone = firstAfter(data.closed, row, tick);
  const closed = gone < data.closed.byRow[0][row + 1] ? data.closed.byRow[1][gone] : -1;
  if (closed >= 0 && data.closed.start[closed] <= tick) {
    const title = data.closed.cordoned[closed] ? 'Closed to new work' : 'Node not there';
    return { title, job: -1, facts: [['Here', where], ['Until', clock(data, data.closed.end[closed])]] };
  }
  return { title: 'Idle', job: -1, facts: [['Here', where], ['At', clock(data, tick)]] };
}

// What each team holds at an instant, of all GPUs.
function stackFacts(data, policy, tick) {
  const { bars } = policy;
  const held = data.teams.map(() => [0, 0]);
  for (let bar = 0; bar < bars.size && bars.start[bar] <= tick; bar++) {
    if (bars.end[bar] <= tick) continue;
    const team = held[data.tree.team[data.jobs.path[bars.job[bar]]]];
    team[0] += bars.gpus[bar];
    if (bars.protectedEnd[bar] <= tick) team[1] += bars.gpus[bar];
  }
  const facts = data.teams.map((team, place) => [team, `${held[place][0]} GPUs, ${held[place][1]} of them interruptible`]);
  const idle = data.rows - held.reduce((sum, [gpus]) => sum + gpus, 0);
  return { title: clock(data, tick), job: -1, facts: [...facts, ['idle or closed', `${idle} GPUs`]] };
}

class Card {
  constructor(element, spoken) {
    Object.assign(this, { element, spoken, pinned: false });
  }

  fill(title, color, facts, heading = '') {
    const list = document.createElement('dl');
    for (const [name, value] of facts) {
      const term = document.createElement('dt');
      const text = document.createElement('dd');
      term.textContent = name;
      text.textContent = value;
      list.append(term, text);
    }
    const top = document.createElement('p');
    top.className = 'title';
    if (color) {
      const swatch = document.createElement('span');
      swatch.className = 'swatch';
      swatch.style.background = color;
      top.append(swatch);
    }
    top.append(title);
    this.element.replaceChildren(top, list);
    if (heading) {
      const note = document.createElement('p');
      note.className = 'note';
      note.textContent = heading;
      this.element.prepend(note);
    }
  }

  // Beside a point of the window, on the side that has room.
  placeAt(x, y) {
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = x + 18 + width > innerWidth ? Math.max(4, x - width - 18) : x + 18;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 8))}px`;
  }

  say() {
    const pairs = [...this.element.querySelectorAll('dt')].map((term) => `${term.textContent}: ${term.nextSibling.textContent}`);
    this.spoken.textContent = `${this.element.querySelector('.title').textContent}. ${pairs.join('. ')}`;
  }

  hide() {
    this.element.hidden = true;
    this.pinned = false;
  }
}
