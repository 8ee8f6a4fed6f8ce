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
    let most = this.kind === 'metric' ? 1.2 : 0.5;
    for (const line of lines) {
      const looked = line.values.slice(first, last + 1);
      line.points = looked.map((value, at) => (value === null ? null : [(first + at + 0.5) * bin, value]));
      most = Math.max(most, ...looked.map((value) => value ?? 0));
    }
    const top = this.kind === 'metric' ? Math.min(most, 4) : most;
    const step = niceStep(top * 1.04, 4);
    const yTicks = [];
    for (let at = 0; at <= top * 1.04; at += step) yTicks.push([at, amount(at)]);
    if (this.kind === 'metric') {
      const even = [[view.t0, 1], [view.t1, 1]];
      lines.unshift({ points: even, color: variable('ink'), dash: [1, 3], width: 1.5 });
    }
    const xTicks = timeTicks(data, view.t0, view.t1, Math.max(2, Math.floor(width / 80)));
    return { x: [view.t0, view.t1], y: [0, top * 1.06], xTicks, yTicks, lines };
  }

  facts(place, name, at) {
    const bin = Math.min(this.data.bins.count - 1, Math.floor(at / this.data.bins.width));
    const unit = this.kind === 'metric' ? '' : ' GPUs';
    const facts = this.lines(place).map((line) => [line.name, line.values[bin] === null ? 'unknown' : amount(line.values[bin]) + unit]);
    return { title: `${name}, ${clock(this.data, at).slice(0, 16)}`, facts };
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
