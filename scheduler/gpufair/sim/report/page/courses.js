// What allocations held against what they were entitled to, and how the policy ranked them, over the time looked at.

class Courses {
  constructor(data, view, card, section, kind) {
    Object.assign(this, { data, view, card, section, kind, plots: [] });
    this.grid = section.querySelector('.grid');
    this.level = section.querySelector('select.level');
    this.span = section.querySelector('select.span');
    this.free = section.querySelector('input.free');
    this.pool = section.querySelector('select.pool');
    this.paths = new Map(data.tree.paths.map((path, place) => [path, place]));
    this.levels();
    for (const control of [this.span, this.free, this.pool]) {
      control?.addEventListener('change', () => this.plots.forEach((plot) => plot.soil()));
    }
    view.follow(() => this.plots.forEach((plot) => plot.soil()));
  }

  children(path) {
    const start = path ? `${path}/` : '';
    if (!path) return this.data.teams;
    return this.data.tree.paths.filter((one) => one.startsWith(start) && !one.slice(start.length).includes('/'));
  }

  // One choice for each node that has children.
  levels() {
    for (const path of this.data.tree.paths) {
      if (!this.children(path).length) continue;
      const option = document.createElement('option');
      option.value = path;
      option.textContent = path || 'all teams';
      this.level.append(option);
    }
    this.level.addEventListener('change', () => this.build());
    this.build();
  }

  build() {
    this.grid.replaceChildren();
    this.plots.forEach((plot) => plot.drop());
    this.plots = [];
    const shown = [this.level.value, ...this.children(this.level.value)];
    for (const path of this.kind === 'usage' ? shown : shown.slice(1)) {
      const name = path || 'the whole cluster';
      const what = this.kind === 'usage' ? 'GPUs held and entitled to' : 'sort metric';
      const canvas = panel(this.grid, name, `${name}: ${what} over time, one line per policy. The tables hold the figures.`);
      const place = this.paths.get(path);
      const plot = new Plot(canvas, (width) => this.frame(place, width), (at) => this.facts(place, name, at), this.card);
      this.plots.push(plot);
    }
  }

  // A row of a column by path, as GPUs; over the window: each the mean of what lies before it.
  held(column, place) {
    const { count, width } = this.data.bins;
    const gpus = Array.from(column.subarray(place * count, (place + 1) * count), (value) => value / 100);
    const bins = Math.max(1, Math.round(Number(this.span?.value ?? 0) / (width * this.data.tick_s)));
    return bins === 1 ? gpus : slid(gpus, bins);
  }

  lines(place) {
    const { data } = this;
    if (this.kind === 'metric') return this.metricLines(place);
    const lines = data.policies.map((policy, at) => {
      const charged = this.held(policy.charged, place);
      const free = this.free.checked ? this.held(policy.unallocated, place) : null;
      return { name: policy.name, values: free ? charged.map((one, bin) => one + free[bin]) : charged, ...policyLine(at) };
    });
    const entitled = { name: 'entitled to', values: this.held(data.entitled, place), color: variable('ink'), dash: [1, 3], width: 2 };
    return [...lines, entitled];
  }

  metricLines(place) {
    const { count } = this.data.bins;
    return this.data.policies.flatMap((policy, at) => {
      const pool = policy.metric.find((one) => one.pool === this.pool.value);
      const row = pool ? pool.paths.indexOf(place) : -1;
      if (row < 0) return [];
      const values = Array.from(pool.values.subarray(row * count, (row + 1) * count), (value) => (value < 0 ? null : value / 1000));
      return [{ name: policy.name, values: filled(values), ...policyLine(at) }];
    });
  }

  frame(place, width) {
    const { data, view } = this;
    const lines = this.lines(place);
    const bin = data.bins.width;
    const [first, last] = [Math.max(0, Math.floor(view.t0 / bin) - 1), Math.ceil(view.t1 / bin)];
    const seen = [];
    for (const line of lines) {
      const looked = line.values.slice(first, last + 1);
      line.points = looked.map((value, at) => (value === null ? null : [(first + at + 0.5) * bin, value]));
      seen.push(...looked.filter((value) => value !== null));
    }
    const y = this.kind === 'metric' ? around(1, seen, 4) : [0, 1.06 * Math.max(0.5, ...seen)];
    if (this.kind === 'metric') {
      const even = [[view.t0, 1], [view.t1, 1]];
      lines.unshift({ points: even, color: variable('ink'), dash: [1, 3], width: 1.5 });
    }
    const xTicks = timeTicks(data, view.t0, view.t1, Math.max(2, Math.floor(width / 80)));
    return { x: [view.t0, view.t1], y, xTicks, yTicks: valueTicks(y), lines };
  }

  facts(place, name, at) {
    const bin = Math.min(this.data.bins.count - 1, Math.floor(at / this.data.bins.width));
    const unit = this.kind === 'metric' ? '' : ' GPUs';
    const facts = this.lines(place).map((line) => [line.name, line.values[bin] === null ? 'unknown' : amount(line.values[bin]) + unit]);
    return { title: `${name}, ${minute(this.data, at)}`, facts };
  }
}

// The mean of the `count` values that end with each; of fewer, at the beginning.
function slid(values, count) {
  let sum = 0;
  return values.map((value, at) => {
    sum += value - (at >= count ? values[at - count] : 0);
    return sum / Math.min(at + 1, count);
  });
}

// A sample holds until the next one.
function filled(values) {
  let before = null;
  return values.map((value) => (before = value ?? before));
}

// From just below the least value to just above the largest one, with `middle` between them and a limit above.
function around(middle, values, most) {
  const low = Math.min(middle - 0.1, ...values);
  const high = Math.min(most, Math.max(middle + 0.1, ...values));
  const edge = 0.06 * (high - low);
  return [Math.max(0, low - edge), high + edge];
}

function valueTicks([from, to]) {
  const step = niceStep(to - from, 4);
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push([at, amount(at)]);
  return ticks;
}
