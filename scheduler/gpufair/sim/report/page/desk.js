// All pictures together: what is looked at, toggled, pointed to; the card; the tools above them.

class Desk {
  constructor(data, view, card) {
    Object.assign(this, { data, view, card, hand: false, hiddenTeams: new Set(), pictures: [], palette: null });
    this.look = this.makeLook();
    view.follow(() => this.pictures.forEach((picture) => picture.soil()));
    themed.push(() => this.repaint());
  }

  makeLook() {
    const { data } = this;
    const leaves = new Map();
    const shade = data.tree.paths.map((path, place) => {
      const team = data.tree.team[place];
      const order = data.tree.leaf[place] ? (leaves.get(team) ?? 0) : 0;
      if (data.tree.leaf[place]) leaves.set(team, order + 1);
      return team * SHADES.length + (order % SHADES.length);
    });
    const quiet = data.reasons.map((reason) => QUIET.has(reason));
    const firstRows = new Set(data.firsts);
    return {
      job: -1,
      cursor: null,
      box: null,
      edges: true,
      landings: true,
      colors: () => (this.palette ??= pictureColors(data.teams.length)),
      keyOf: (job) => (this.hiddenTeams.has(data.tree.team[data.jobs.path[job]]) ? -1 : shade[data.jobs.path[job]]),
      isHidden: (team) => this.hiddenTeams.has(team),
      isFree: (job) => data.jobs.min_runtime_s[job] === 0,
      isEvicted: (reason) => reason >= 0 && !quiet[reason],
      startsNode: (row) => firstRows.has(row),
      colorOf: (job) => css(this.look.colors().teams[shade[data.jobs.path[job]]]),
    };
  }

  repaint() {
    this.palette = null;
    this.pictures.forEach((picture) => picture.soil());
  }

  overlay() {
    this.pictures.forEach((picture) => picture.visible && picture.drawOver());
  }

  mark(box) {
    if (!box && !this.look.box) return;
    this.look.box = box;
    this.card.hide();
    this.overlay();
  }

  box() {
    return this.look.box;
  }

  tell(picture, tick, row, x, y, above = false) {
    const { data } = this;
    const found = above ? stackFacts(data, picture.policy, tick) : factsAt(data, picture.policy, row, tick);
    this.look.job = found.job;
    this.look.cursor = { tick, row, place: picture.place, above };
    this.card.fill(found.title, found.job >= 0 ? this.look.colorOf(found.job) : '', found.facts, picture.policy.name);
    this.card.placeAt(x, y);
    this.overlay();
  }

  hover(picture, x, y, event) {
    if (this.card.pinned) return;
    const { tick, row, inside, above } = picture.at(x, y);
    if (inside) this.tell(picture, tick, row, event.clientX, event.clientY, above);
    else this.leave();
  }

  pin(picture, x, y, event) {
    const { tick, row, inside, above } = picture.at(x, y);
    const again = this.card.pinned;
    this.leave(true);
    if (!inside || again) return;
    this.tell(picture, tick, row, event.clientX, event.clientY, above);
    this.card.pinned = true;
    this.card.say();
  }

  leave(unpin = false) {
    if (this.card.pinned && !unpin) return;
    this.card.hide();
    this.look.job = -1;
    this.look.cursor = null;
    this.overlay();
  }

  // With keys: to the stint before or after this one, or to the GPU above or below.
  walk(picture, along, across) {
    const { view, data } = this;
    const cursor = this.look.cursor ?? { tick: (view.t0 + view.t1) / 2, row: Math.floor((view.r0 + view.r1) / 2) };
    const row = Math.min(data.rows - 1, Math.max(0, cursor.row + across));
    const tick = along ? nextOnRow(picture.policy, row, cursor.tick, along) : cursor.tick;
    const lacking = tick < view.t0 ? tick - view.t0 : Math.max(0, tick - view.t1);
    const short = row < view.r0 ? row - view.r0 : Math.max(0, row + 1 - view.r1);
    if (lacking || short) view.pan(lacking && lacking + Math.sign(lacking) * 0.2 * (view.t1 - view.t0), short);
    const at = picture.placeOf(tick, row + 0.5);
    const frame = picture.over.getBoundingClientRect();
    this.tell(picture, tick, row, frame.left + at.x, frame.top + at.y);
    this.card.pinned = true;
    this.card.say();
  }
}

function nextOnRow(policy, row, tick, along) {
  const { bars } = policy;
  const [starts, members] = bars.byRow;
  let at = firstAfter(bars, row, tick);
  const inside = at < starts[row + 1] && bars.start[members[at]] <= tick;
  at += along > 0 ? Number(inside) : -1;
  if (at < starts[row] || at >= starts[row + 1]) return tick;
  return (bars.start[members[at]] + bars.end[members[at]]) / 2;
}
