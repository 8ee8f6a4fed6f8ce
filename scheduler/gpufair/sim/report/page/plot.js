// One small chart: axes, lines, and the values under the pointer.

const MARGIN = { left: 46, right: 10, top: 8, bottom: 20 };

const plots = new Map(); // by canvas

class Plot {
  // `source()` answers {x: [from, to], y: [from, to], xTicks, yTicks, lines, marks}, with ticks as [value, label] and
  // lines as {points: [[x, y], ...], color, dash, width, stepped}; `read(x)` what stands on the card at x.
  constructor(canvas, source, read, card) {
    Object.assign(this, { canvas, source, read, card, visible: false, dirty: true, at: null });
    new ResizeObserver(() => this.soil()).observe(canvas);
    new IntersectionObserver((entries) => this.seen(entries.at(-1).isIntersecting), { rootMargin: '200px' }).observe(canvas);
    plots.set(canvas, this);
    canvas.addEventListener('pointermove', (event) => this.point(event));
    canvas.addEventListener('pointerleave', () => this.leave());
  }

  drop() {
    plots.delete(this.canvas);
  }

  seen(visible) {
    this.visible = visible;
    if (visible && this.dirty) this.draw();
  }

  soil() {
    this.dirty = true;
    if (this.visible) this.draw();
  }

  get area() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  }

  draw() {
    const { width, height } = this.area;
    if (width < 10 || height < 10) return;
    this.dirty = false;
    this.frame = this.source(width);
    const context = fitted(this.canvas, devicePixelRatio || 1);
    context.fillStyle = variable('ground');
    context.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    this.grid(context, width, height);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top - 2, width, height + 4);
    context.clip();
    this.frame.lines.forEach((line) => this.line(context, line));
    if (this.at !== null) this.cursor(context, height);
    context.restore();
  }

  x(value) {
    const [from, to] = this.frame.x;
    return MARGIN.left + ((value - from) / (to - from || 1)) * this.area.width;
  }

  y(value) {
    const [from, to] = this.frame.y;
    return MARGIN.top + (1 - (value - from) / (to - from || 1)) * this.area.height;
  }

  grid(context, width, height) {
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.fillStyle = variable('soft');
    context.strokeStyle = variable('line');
    context.textAlign = 'right';
    for (const [value, label] of this.frame.yTicks) {
      const y = Math.round(this.y(value)) + 0.5;
      stroke(context, [[MARGIN.left, y], [MARGIN.left + width, y]]);
      context.fillText(label, MARGIN.left - 6, y);
    }
    context.textAlign = 'center';
    for (const [value, label] of this.frame.xTicks) {
      const x = this.x(value);
      if (x < MARGIN.left - 1 || x > MARGIN.left + width + 1) continue;
      stroke(context, [[Math.round(x) + 0.5, MARGIN.top + height], [Math.round(x) + 0.5, MARGIN.top + height + 4]]);
      context.fillText(label, Math.min(MARGIN.left + width - 8, x), MARGIN.top + height + 12);
    }
  }

  line(context, { points, color, dash, width, stepped }) {
    context.save();
    context.strokeStyle = color;
    context.lineWidth = width ?? 1.5;
    context.lineJoin = 'round';
    context.setLineDash(dash ?? []);
    context.beginPath();
    let before = null;
    for (const point of points) {
      if (point === null) {
        before = null;
        continue;
      }
      const [x, y] = [this.x(point[0]), this.y(point[1])];
      if (before === null) context.moveTo(x, y);
      else {
        if (stepped) context.lineTo(x, before);
        context.lineTo(x, y);
      }
      before = y;
    }
    context.stroke();
    context.restore();
  }

  cursor(context, height) {
    context.strokeStyle = variable('ink');
    context.globalAlpha = 0.5;
    stroke(context, [[this.x(this.at), MARGIN.top], [this.x(this.at), MARGIN.top + height]]);
    context.globalAlpha = 1;
  }

  point(event) {
    if (!this.frame) return;
    const [from, to] = this.frame.x;
    const at = from + ((event.offsetX - MARGIN.left) / this.area.width) * (to - from);
    if (at < from || at > to) return this.leave();
    this.at = at;
    const { title, facts } = this.read(at);
    this.card.pinned = false;
    this.card.fill(title, '', facts);
    this.card.placeAt(event.clientX, event.clientY);
    return this.draw();
  }

  leave() {
    if (this.at === null) return;
    this.at = null;
    this.card.hide();
    this.draw();
  }
}

themed.push(() => plots.forEach((plot) => plot.soil()));

function stroke(context, points) {
  context.beginPath();
  points.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

function policyLine(place) {
  return { color: css(hue(place)), dash: DASHES[place % DASHES.length] };
}

// A panel of a grid of charts.
function panel(grid, title, label) {
  const figure = document.createElement('figure');
  figure.className = 'panel';
  const caption = document.createElement('figcaption');
  caption.textContent = title;
  const canvas = document.createElement('canvas');
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', label);
  figure.append(caption, canvas);
  grid.append(figure);
  return canvas;
}

// What the lines of a grid of charts mean.
function lineKey(holder, names, entries = []) {
  const draw = () => {
    holder.replaceChildren();
    const lines = [...names.map((name, place) => [name, policyLine(place)]), ...entries.map((make) => make())];
    for (const [name, { color, dash, width }] of lines) {
      const item = document.createElement('li');
      const canvas = document.createElement('canvas');
      canvas.className = 'stroke';
      canvas.setAttribute('aria-hidden', 'true');
      item.append(canvas, name);
      holder.append(item);
      const context = fitted(canvas, devicePixelRatio || 1);
      Object.assign(context, { strokeStyle: color, lineWidth: width ?? 2 });
      context.setLineDash(dash ?? []);
      stroke(context, [[0, 6], [28, 6]]);
    }
  };
  draw();
  themed.push(draw);
}
