// Puts the page together.

function legendButtons(data, desk, list) {
  const buttons = [];
  data.teams.forEach((team, place) => {
    const item = document.createElement('li');
    const button = document.createElement('button');
    const swatch = document.createElement('span');
    button.type = 'button';
    button.setAttribute('aria-pressed', 'true');
    swatch.className = 'swatch';
    button.append(swatch, team);
    button.addEventListener('click', () => {
      const shown = desk.hiddenTeams.delete(place);
      if (!shown) desk.hiddenTeams.add(place);
      button.setAttribute('aria-pressed', String(shown));
      desk.repaint();
    });
    item.append(button);
    list.append(item);
    buttons.push(swatch);
  });
  const paint = () => buttons.forEach((swatch, place) => (swatch.style.background = css(hue(place))));
  paint();
  themed.push(paint);
}

function toggles(desk) {
  for (const part of ['edges', 'landings']) {
    const button = document.getElementById(`show-${part}`);
    button.addEventListener('click', () => {
      desk.look[part] = !desk.look[part];
      button.setAttribute('aria-pressed', String(desk.look[part]));
      desk.repaint();
    });
  }
}

function tools(data, view, desk) {
  const middle = () => (view.t0 + view.t1) / 2;
  const press = (id, act) => document.getElementById(id).addEventListener('click', act);
  press('closer', () => view.zoom(0.5, middle()));
  press('farther', () => view.zoom(2, middle()));
  press('taller', () => view.zoom(1, middle(), null, 0.5));
  press('flatter', () => view.zoom(1, middle(), null, 2));
  press('whole', () => view.reset());
  press('hand', (event) => {
    desk.hand = !desk.hand;
    event.currentTarget.setAttribute('aria-pressed', String(desk.hand));
    document.body.classList.toggle('hand', desk.hand);
  });
  const range = document.getElementById('range');
  const tell = () => {
    const rows = view.r0 === 0 && view.r1 === data.rows ? '' : `, ${Math.round(view.r1 - view.r0)} of ${data.rows} GPUs`;
    range.textContent = `${minute(data, view.t0)} – ${minute(data, view.t1)}${rows}`;
  };
  view.follow(tell);
  tell();
}

function legendEntries(data) {
  const teams = data.teams.map((name, place) => ({ name, color: css(hue(place)) }));
  return [...teams, { name: 'preemption', color: variable('edge') }, { name: 'landing', color: variable('landing') }];
}

function exports(data, desk) {
  const title = document.querySelector('h1').textContent;
  const section = document.getElementById('pictures');
  const one = (picture) => download(
    pngOf(`${title}: ${picture.policy.name}`, [{ canvas: picture.canvas, x: 0, y: 0 }], legendEntries(data)),
    `${title} ${picture.policy.name}`,
  );
  desk.pictures.forEach((picture) => picture.holder.querySelector('.png').addEventListener('click', () => one(picture)));
  document.getElementById('png-all').addEventListener('click', () => {
    desk.pictures.forEach((picture) => picture.draw());
    let y = 24;
    const parts = desk.pictures.map(({ canvas, policy }) => {
      const part = { canvas, name: policy.name, x: 0, y };
      y += canvas.clientHeight + 36;
      return part;
    });
    download(pngOf(title, parts, legendEntries(data)), title);
  });
  for (const charts of document.querySelectorAll('section.charts')) {
    charts.querySelector('.png').addEventListener('click', () => chartsPng(title, charts, data));
  }
  return section;
}

function chartsPng(title, charts, data) {
  const grid = charts.querySelector('.grid');
  const canvases = [...grid.querySelectorAll('canvas')];
  canvases.forEach((canvas) => plots.get(canvas).draw());
  const named = canvases.map((canvas) => [canvas, canvas.parentElement.querySelector('figcaption').textContent]);
  const heading = `${title}: ${charts.querySelector('h2').textContent}`;
  const legend = data.policies.map(({ name }, place) => ({ name, color: css(hue(place)) }));
  download(pngOf(heading, partsOf(grid, named), legend), heading);
}

function themeSwitch() {
  const choice = document.getElementById('theme');
  choice.addEventListener('change', () => chooseTheme(choice.value));
}

function courses(data, view, card) {
  const entitled = () => ['entitled to', { color: variable('ink'), dash: [1, 3] }];
  const even = () => ['as much as it was due', { color: variable('ink'), dash: [1, 3] }];
  const names = data.policies.map((policy) => policy.name);
  const usage = document.getElementById('usage');
  lineKey(usage.querySelector('.key'), names, [entitled]);
  new Courses(data, view, card, usage, 'usage');
  const metric = document.getElementById('metric');
  const pools = [...new Set(data.policies.flatMap((policy) => policy.metric.map((one) => one.pool)))];
  metric.hidden = !pools.length;
  if (!pools.length) return;
  const select = metric.querySelector('select.pool');
  pools.forEach((pool) => select.append(new Option(pool, pool)));
  select.parentElement.hidden = pools.length === 1;
  lineKey(metric.querySelector('.key'), names, [even]);
  new Courses(data, view, card, metric, 'metric');
}

async function main() {
  const data = laidOut(await decoded(JSON.parse(document.getElementById('data').textContent)));
  const card = new Card(document.getElementById('card'), document.getElementById('spoken'));
  const view = new View(data.end, data.rows);
  const desk = new Desk(data, view, card);
  document.querySelectorAll('table.sortable').forEach(sortable);
  themeSwitch();
  legendButtons(data, desk, document.getElementById('teams'));
  toggles(desk);
  tools(data, view, desk);
  document.querySelectorAll('.picture').forEach((holder, place) => {
    const picture = new Picture(data, place, view, desk.look, holder);
    desk.pictures.push(picture);
    new Gestures(picture, desk);
  });
  courses(data, view, card);
  const waits = document.getElementById('waits');
  lineKey(waits.querySelector('.key'), data.policies.map((policy) => policy.name));
  waitPanels(data, card, waits);
  const delivered = document.getElementById('delivered');
  if (delivered) signKey(delivered.querySelector('.key'), data.policies.map((policy) => policy.name));
  deliveredChart(data, delivered);
  exports(data, desk);
  document.addEventListener('keydown', (event) => event.key === 'Escape' && desk.leave(true));
  addEventListener('scroll', () => desk.leave(true), { passive: true });
  document.body.dataset.ready = 'yes';
}

main().catch((error) => {
  const message = document.getElementById('failed');
  message.hidden = false;
  message.textContent = `The pictures could not be drawn: ${error.message}. The tables below are complete. A browser of 2023 or later is needed.`;
});
