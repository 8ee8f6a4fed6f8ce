// Waits as distributions, and what was delivered of what was owed.

const WAIT_NAMES = { debug: 'debug', session: 'session', batch: 'batch', touched: 'parked session, touched' };
const ROUND_WAITS = [
  [1, '1 s'],
  [10, '10 s'],
  [60, '1 min'],
  [600, '10 min'],
  [3600, '1 h'],
  [21600, '6 h'],
  [86400, '1 d'],
  [604800, '7 d'],
  [2592000, '30 d'],
];

function waitPanels(data, card, section) {
  const grid = section.querySelector('.grid');
  const kinds = [...new Set(data.policies.flatMap((policy) => policy.waits.map((one) => one.kind)))];
  const longest = Math.max(60, ...data.policies.flatMap((policy) => policy.waits.map((one) => (one.wait_ms.at(-1) ?? 0) / 1000)));
  for (const kind of kinds) {
    const name = WAIT_NAMES[kind] ?? kind;
    const curves = data.policies.map((policy) => policy.waits.find((one) => one.kind === kind) ?? null);
    const canvas = panel(grid, name, `${name}: share that had started within a wait, one line per policy.`);
    new Plot(canvas, () => waitFrame(curves, longest), (at) => waitFacts(data, curves, name, at), card);
  }
}

function waitFrame(curves, longest) {
  const x = [0, Math.log10(longest * 1.1)];
  const lines = curves.map((curve, place) => ({
    points: curve ? curvePoints(curve, x[1]) : [],
    stepped: true,
    ...policyLine(place),
  }));
  const xTicks = ROUND_WAITS.filter(([one]) => one <= longest * 1.1).map(([one, label]) => [Math.log10(one), label]);
  return { x, y: [0, 1.02], xTicks, yTicks: [0, 0.25, 0.5, 0.75, 1].map((one) => [one, `${100 * one} %`]), lines };
}

function curvePoints({ started, wait_ms: waits, count }, end) {
  const points = [[0, 0]];
  for (let at = 0; at < started.length; at++) points.push([Math.log10(Math.max(1, waits[at] / 1000)), started[at] / count]);
  points.push([end, points.at(-1)[1]]);
  return points;
}

function waitFacts(data, curves, name, at) {
  const seconds = 10 ** at;
  const facts = curves.flatMap((curve, place) => {
    if (!curve) return [];
    let point = -1;
    while (point + 1 < curve.started.length && curve.wait_ms[point + 1] / 1000 <= seconds) point++;
    const share = point < 0 ? 0 : curve.started[point] / curve.count;
    return [[data.policies[place].name, `${amount(100 * share)} % of ${curve.count.toLocaleString('en')}`]];
  });
  return { title: `${name}: started within ${span(seconds)}`, facts };
}

// A row for each allocation: a mark for each policy, the band of one grant more or less, and the line at 100 %.
const ROW = 22;

function deliveredChart(data, section) {
  if (!section) return;
  const canvas = panel(section.querySelector('.grid'), '', 'Delivered of owed by allocation and policy; the table below says the same.');
  canvas.style.height = `${data.delivered.length * ROW + 30}px`;
  plots.set(canvas, new Dots(canvas, data));
}

class Dots extends Plot {
  constructor(canvas, data) {
    super(canvas, null, null, null);
    this.data = data;
  }

  point() {}

  leave() {}

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (width < 50) return;
    this.dirty = false;
    const context = fitted(this.canvas, devicePixelRatio || 1);
    context.fillStyle = variable('ground');
    context.fillRect(0, 0, width, height);
    context.font = '12px system-ui, sans-serif';
    const names = this.data.delivered.map((row) => row.path);
    const left = Math.min(width / 3, Math.max(...names.map((name) => context.measureText(name).width)) + 16);
    const most = Math.max(1100, ...this.data.delivered.flatMap((row) => row.ratios.filter((one) => one !== null)));
    this.scale = { left, most: Math.min(most, 2000), beyond: most > 2000, width: width - left - 24 };
    this.axis(context, height);
    this.data.delivered.forEach((row, at) => this.row(context, row, 6 + at * ROW, left));
  }

  across(thousandths) {
    const { left, most, width } = this.scale;
    return left + (Math.min(Math.max(0, thousandths), most) / most) * width;
  }

  axis(context, height) {
    context.strokeStyle = variable('line');
    context.fillStyle = variable('soft');
    context.textBaseline = 'middle';
    for (let at = 0; at <= this.scale.most; at += 200) {
      const x = Math.round(this.across(at)) + 0.5;
      context.strokeStyle = variable(at === 1000 ? 'ink' : 'line');
      stroke(context, [[x, 4], [x, height - 22]]);
      const end = at + 200 > this.scale.most;
      const label = `${end && this.scale.beyond ? '≥ ' : ''}${at / 10} %`;
      context.textAlign = end ? 'right' : 'center';
      context.fillText(label, end ? x + 14 : x, height - 10);
    }
  }

  row(context, { path, ratios, granule }, y, left) {
    const middle = y + ROW / 2 - 2;
    const [from, to] = [this.across(1000 - granule), this.across(1000 + granule)];
    context.fillStyle = variable('muted');
    context.globalAlpha = 0.45;
    context.fillRect(from, y, Math.max(1, to - from), ROW - 4);
    context.globalAlpha = 1;
    context.fillStyle = variable('ink');
    context.textAlign = 'right';
    context.fillText(clipped(context, path, left - 12), left - 8, middle);
    // Marks of one row stand a little below each other, so that equal ones are all seen.
    const apart = Math.min(3, 10 / ratios.length);
    ratios.forEach((ratio, place) => {
      const down = (place - (ratios.length - 1) / 2) * apart;
      if (ratio !== null) sign(context, place, this.across(ratio), middle + down);
    });
  }
}

// Marks of policies differ in shape as well as in colour.
function sign(context, place, x, y) {
  context.fillStyle = css(hue(place));
  context.strokeStyle = variable('ground');
  context.lineWidth = 1;
  context.beginPath();
  if (place % 4 === 0) context.arc(x, y, 5, 0, 2 * Math.PI);
  else polygon(context, x, y, [[], [[-4.5, -4.5], [4.5, -4.5], [4.5, 4.5], [-4.5, 4.5]], [[0, -6], [6, 5], [-6, 5]], [[0, -6], [6, 0], [0, 6], [-6, 0]]][place % 4]);
  context.fill();
  context.stroke();
}

function polygon(context, x, y, corners) {
  corners.forEach(([dx, dy], at) => (at ? context.lineTo(x + dx, y + dy) : context.moveTo(x + dx, y + dy)));
  context.closePath();
}

function signKey(holder, names) {
  const draw = () => {
    holder.replaceChildren();
    names.forEach((name, place) => {
      const item = document.createElement('li');
      const canvas = document.createElement('canvas');
      canvas.className = 'sign';
      canvas.setAttribute('aria-hidden', 'true');
      item.append(canvas, name);
      holder.append(item);
      sign(fitted(canvas, devicePixelRatio || 1), place, 7, 7);
    });
  };
  draw();
  themed.push(draw);
}
