// Waits as distributions, and what was delivered of what was owed.

const WAIT_NAMES = { debug: 'debug', session: 'session', batch: 'batch', touched: 'parked session, touched' };
const SECONDS = [1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000];

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
  const xTicks = SECONDS.filter((one) => one <= longest * 1.1).map((one) => [Math.log10(one), span(one)]);
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
