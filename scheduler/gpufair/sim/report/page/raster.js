// Painting GPUs × time, pixel by pixel. A pixel that holds many stints shows the team that holds most of it (a vote),
// as strongly as it is held at all: colours are never blended into a team that is not there.

const PARTS = ['vote', 'cover', 'open', 'free', 'edge', 'cut', 'kept', 'closed', 'due'];
const FINE = 2.5; // CSS pixels: lower rows are too low for hatching and lightness to be told apart
// How much ground shows through what may be interrupted: in stripes, or evenly where rows are low.
const OPEN = { striped: 0.5, fine: 0.2 };
const FREE = { plain: 0.3, striped: 0.72, fine: 0.45 };

class Line {
  constructor(width) {
    this.width = width;
    this.key = new Int16Array(width);
    for (const part of PARTS) this[part] = new Float32Array(width + 1);
  }

  clear() {
    for (const part of PARTS) this[part].fill(0);
  }

  add(part, from, to, weight) {
    covered(this[part], from, to, weight);
  }

  elect(key, from, to, weight) {
    const last = Math.min(this.width - 1, Math.ceil(to) - 1);
    for (let at = Math.floor(from); at <= last; at++) {
      const part = (Math.min(to, at + 1) - Math.max(from, at)) * weight;
      if (this.key[at] === key) this.vote[at] += part;
      else if (this.vote[at] >= part) this.vote[at] -= part;
      else {
        this.key[at] = key;
        this.vote[at] = part - this.vote[at];
      }
    }
  }

  mark(part, at, weight) {
    const pixel = Math.floor(at);
    if (pixel >= 0 && pixel < this.width) this[part][pixel] += weight;
  }
}

// Adds an amount from one place to another, as much to a pixel as it covers of it.
function covered(values, from, to, amount) {
  if (to <= from) return;
  const [first, last] = [Math.floor(from), Math.floor(to)];
  if (first === last) {
    values[first] += (to - from) * amount;
    return;
  }
  values[first] += (first + 1 - from) * amount;
  for (let at = first + 1; at < last; at++) values[at] += amount;
  values[last] += (to - last) * amount;
}

// The first member of a row that ends after an instant.
function firstAfter(spans, row, instant) {
  const [starts, members] = spans.byRow;
  let low = starts[row];
  let high = starts[row + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.end[members[middle]] > instant) high = middle;
    else low = middle + 1;
  }
  return low;
}

function eachOnRow(spans, row, view, tell) {
  const [starts, members] = spans.byRow;
  for (let at = firstAfter(spans, row, view.t0); at < starts[row + 1]; at++) {
    if (spans.start[members[at]] >= view.t1) return;
    tell(members[at]);
  }
}

class Painter {
  constructor(data, policy, look) {
    Object.assign(this, { data, policy, look });
  }

  // Everything of one row, each part as much as `weight` of a pixel.
  row(line, row, view, weight) {
    const scale = line.width / (view.t1 - view.t0);
    const x = (tick) => Math.min(line.width, Math.max(0, (tick - view.t0) * scale));
    eachOnRow(this.data.closed, row, view, (one) => {
      const { start, end } = this.data.closed;
      line.add('closed', x(start[one]), x(end[one]), weight);
    });
    // Landings of one row may overlap, and are few: all are looked at.
    const { landings, bars } = this.policy;
    if (this.look.landings) {
      for (let at = landings.byRow[0][row]; at < landings.byRow[0][row + 1]; at++) {
        const one = landings.byRow[1][at];
        if (landings.end[one] <= view.t0 || landings.start[one] >= view.t1) continue;
        line.add('kept', x(landings.start[one]), x(landings.end[one]), weight);
        // A landing that was over before its time has none to show.
        if (landings.at[one] <= landings.end[one]) line.mark('due', (landings.at[one] - view.t0) * scale, weight);
      }
    }
    eachOnRow(bars, row, view, (bar) => this.bar(line, bar, x, scale, view, weight));
  }

  bar(line, bar, x, scale, view, weight) {
    const { bars } = this.policy;
    const [from, until, to] = [x(bars.start[bar]), x(bars.protectedEnd[bar]), x(bars.end[bar])];
    line.add('cover', from, to, weight);
    line.elect(this.look.keyOf(bars.job[bar]), from, to, weight);
    if (this.look.isFree(bars.job[bar])) line.add('free', from, to, weight);
    else if (until < to) line.add('open', until, to, weight);
    const width = (bars.end[bar] - bars.start[bar]) * scale;
    if (width >= this.leastCut) line.mark('cut', (bars.start[bar] - view.t0) * scale, weight);
    if (this.look.edges && this.look.isEvicted(bars.reason[bar])) {
      const edge = (bars.end[bar] - view.t0) * scale - 0.5;
      line.mark('edge', edge, weight);
      if (width >= 8) line.mark('edge', edge - 1, weight);
    }
  }

  // The picture as pixels. `ratio` is device pixels per CSS pixel; hatching is measured in CSS pixels.
  paint(width, height, view, colors, ratio) {
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const line = new Line(width);
    const rowsPerLine = (view.r1 - view.r0) / height;
    const fine = 1 / rowsPerLine < FINE * ratio;
    this.leastCut = fine ? 16 * ratio : 4 * ratio; // shorter stints would be all edge
    const inks = inksOf(fine ? colors.flat : colors.teams, colors, fine);
    let shown = '';
    for (let y = 0; y < height; y++) {
      const [first, last] = rowsOf(view.r0 + y * rowsPerLine, rowsPerLine, this.data.rows);
      if (shown !== `${first} ${last}`) {
        line.clear();
        for (let row = first; row <= last; row++) this.row(line, row, view, 1 / (last - first + 1));
        shown = `${first} ${last}`;
      }
      const gap = this.gap(view.r0 + y * rowsPerLine, rowsPerLine, ratio);
      compose(pixels, y, line, inks, colors, ratio, gap);
    }
    return image;
  }

  // How much of a line is ground: the last one of a row, and more so of a node, where these are tall enough.
  gap(row, rowsPerLine, ratio) {
    if (Math.floor(row) === Math.floor(row + rowsPerLine)) return 0;
    const { firsts, rows } = this.data;
    const node = rows / (firsts.length - 1);
    const next = Math.floor(row + rowsPerLine);
    if (node / rowsPerLine >= 7 * ratio && rowsPerLine < 1 && this.look.startsNode(next)) return 0.85;
    return 1 / rowsPerLine >= 5 * ratio ? 0.45 : 0;
  }
}

function rowsOf(from, rowsPerLine, rows) {
  if (rowsPerLine <= 1) {
    const row = Math.min(rows - 1, Math.floor(from + rowsPerLine / 2));
    return [row, row];
  }
  const first = Math.floor(from + 1e-6);
  return [first, Math.min(rows - 1, Math.max(first, Math.ceil(from + rowsPerLine - 1e-6) - 1))];
}

// What a pixel looks like that one team holds wholly: packed colours by key, plain and under a stripe.
function inksOf(teams, colors, fine) {
  const every = [...teams, colors.muted]; // the last one is for teams that are hidden
  const ink = (part) => Int32Array.from(every, (color) => packed(mixed(color, colors.ground, part)));
  return {
    solid: ink(0),
    open: [ink(fine ? OPEN.fine : 0), ink(fine ? OPEN.fine : OPEN.striped)],
    free: [ink(fine ? FREE.fine : FREE.plain), ink(fine ? FREE.fine : FREE.striped)],
    edge: fine ? 0.75 : 1,
    every,
  };
}

function compose(pixels, y, line, inks, colors, ratio, gap) {
  const { width, key, cover, open, free, edge, cut, kept, closed, due } = line;
  const [period, stroke] = [6 * ratio, 2 * ratio];
  const hidden = inks.every.length - 1;
  for (let x = 0; x < width; x++) {
    const held = cover[x];
    const falling = (x + y) % period < stroke ? 1 : 0;
    const rising = (x + period * y - y) % period < stroke ? 1 : 0;
    const who = key[x] < 0 ? hidden : key[x];
    let color = inks.solid[who];
    if (2 * free[x] > held) color = inks.free[rising][who];
    else if (2 * open[x] > held) color = inks.open[falling][who];
    const simple = held > 0.995 && !gap && !cut[x] && !due[x] && !edge[x];
    if (!simple) {
      const blended = [...colors.idle];
      if (kept[x]) blend(blended, colors.landing, Math.min(1, kept[x]) * (rising ? 0.95 : 0.6));
      if (closed[x]) blend(blended, colors.closed, Math.min(1, closed[x]) * (falling ? 1 : 0.75));
      if (held) blend(blended, unpacked(color), Math.min(1, held) ** 0.8);
      if (cut[x]) blend(blended, colors.ground, 0.6 * Math.min(1, cut[x]));
      if (due[x]) blend(blended, colors.landing, 0.8 * Math.min(1, due[x]));
      if (edge[x]) blend(blended, colors.edge, Math.min(1, edge[x]) * inks.edge);
      if (gap) blend(blended, colors.ground, gap);
      color = packed(blended);
    }
    pixels[y * width + x] = color;
  }
}

function blend(blended, color, part) {
  for (let at = 0; at < 3; at++) blended[at] += (color[at] - blended[at]) * part;
}

function packed(color) {
  return 0xff000000 | (Math.round(color[2]) << 16) | (Math.round(color[1]) << 8) | Math.round(color[0]);
}

function unpacked(pixel) {
  return [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
}
