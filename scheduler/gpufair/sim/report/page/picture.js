// One policy's picture: the painted canvas with its axes, and over it a second one for what moves with the pointer.

const GUTTER = 76; // CSS pixels left of the rows, for names of nodes
const FOOT = 22; // below them, for times
const STRIP = 76; // above them, for the stack of teams, with a gap
const HEAD = STRIP + 6;

class Picture {
  constructor(data, place, view, look, holder) {
    Object.assign(this, { data, place, view, look, holder, policy: data.policies[place], dirty: true, visible: false });
    this.canvas = holder.querySelector('canvas.painted');
    this.over = holder.querySelector('canvas.over');
    this.painter = new Painter(data, this.policy, look);
    this.strip = new Strip(data, this.policy, look);
    new ResizeObserver(() => this.soil()).observe(this.canvas);
    new IntersectionObserver((entries) => this.seen(entries.at(-1).isIntersecting), { rootMargin: '200px' }).observe(holder);
    this.canvas.parentElement.style.height = `${pictureHeight(data.rows)}px`;
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
    return { width: this.canvas.clientWidth - GUTTER, height: this.canvas.clientHeight - HEAD - FOOT };
  }

  draw() {
    const { width, height } = this.area;
    if (width < 10 || height < 10) return;
    this.dirty = false;
    const ratio = devicePixelRatio || 1;
    const context = fitted(this.canvas, ratio);
    const colors = this.look.colors();
    context.fillStyle = variable('ground');
    context.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    const [wide, high, left] = [width, height, GUTTER].map((size) => Math.round(size * ratio));
    context.putImageData(this.strip.paint(wide, Math.round(STRIP * ratio), this.view, colors), left, 0);
    context.putImageData(this.painter.paint(wide, high, this.view, colors, ratio), left, Math.round(HEAD * ratio));
    this.axes(context, width, height);
    this.drawOver();
  }

  axes(context, width, height) {
    const { view, data } = this;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.strokeStyle = variable('line');
    context.fillStyle = variable('soft');
    context.textAlign = 'center';
    for (const [tick, label] of timeTicks(data, view.t0, view.t1, Math.max(2, Math.floor(width / 90)))) {
      const x = GUTTER + ((tick - view.t0) / (view.t1 - view.t0)) * width;
      context.fillRect(Math.round(x), HEAD + height, 1, 4);
      if (x > GUTTER + 16 && x < GUTTER + width - 16) context.fillText(label, x, HEAD + height + 13);
    }
    context.textAlign = 'right';
    context.fillText(`${data.rows} GPUs`, GUTTER - 6, 7);
    context.fillText('0', GUTTER - 6, STRIP - 6);
    let before = -100;
    for (let node = 0; node < data.nodes.names.length; node++) {
      const middle = (data.firsts[node] + data.firsts[node + 1]) / 2;
      const y = ((middle - view.r0) / (view.r1 - view.r0)) * height;
      if (y < 5 || y > height - 5 || y - before < 15) continue;
      context.fillText(clipped(context, data.nodes.names[node], GUTTER - 10), GUTTER - 6, HEAD + y);
      before = y;
    }
    this.warmUp(context, width, height);
  }

  warmUp(context, width, height) {
    const { view, data } = this;
    if (!data.warm_up || data.warm_up <= view.t0 || data.warm_up >= view.t1) return;
    const x = GUTTER + ((data.warm_up - view.t0) / (view.t1 - view.t0)) * width;
    context.save();
    context.setLineDash([4, 3]);
    context.strokeStyle = variable('ink');
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, HEAD + height);
    context.stroke();
    context.restore();
  }

  // What lies at a point of the canvas, in CSS pixels.
  at(x, y) {
    const { width, height } = this.area;
    const { view } = this;
    const tick = view.t0 + ((x - GUTTER) / width) * (view.t1 - view.t0);
    const row = Math.floor(view.r0 + ((y - HEAD) / height) * (view.r1 - view.r0));
    const inside = x >= GUTTER && y < HEAD + height;
    return { tick, row: Math.min(this.data.rows - 1, Math.max(0, row)), inside, above: y < HEAD };
  }

  placeOf(tick, row) {
    const { width, height } = this.area;
    const { view } = this;
    return {
      x: GUTTER + ((tick - view.t0) / (view.t1 - view.t0)) * width,
      y: HEAD + ((row - view.r0) / (view.r1 - view.r0)) * height,
    };
  }

  drawOver() {
    const { width, height } = this.area;
    const context = fitted(this.over, devicePixelRatio || 1);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width, HEAD + height);
    context.clip();
    if (this.look.job >= 0) this.outline(context, this.look.job);
    this.cross(context, width, height);
    this.box(context);
    context.restore();
  }

  // All stints of a job: the same one is seen under every policy.
  outline(context, job) {
    const { bars } = this.policy;
    const [starts, members] = this.policy.byJob;
    for (const [style, thick] of [[variable('ground'), 4], [variable('ink'), 1.75]]) {
      context.strokeStyle = style;
      context.lineWidth = thick;
      for (let at = starts[job]; at < starts[job + 1]; at++) {
        const bar = members[at];
        for (let run = bars.firstRun[bar]; run < bars.firstRun[bar + 1]; run++) {
          const a = this.placeOf(bars.start[bar], bars.first[run]);
          const b = this.placeOf(bars.end[bar], bars.first[run] + bars.count[run]);
          context.strokeRect(a.x, a.y, Math.max(2, b.x - a.x), Math.max(2, b.y - a.y));
        }
      }
    }
  }

  cross(context, width, height) {
    const cursor = this.look.cursor;
    if (!cursor) return;
    const { x, y } = this.placeOf(cursor.tick, cursor.row + 0.5);
    context.fillStyle = variable('ink');
    context.globalAlpha = 0.55;
    context.fillRect(Math.round(x), 0, 1, HEAD + height);
    if (cursor.place === this.place && !cursor.above) context.fillRect(GUTTER, Math.round(y), width, 1);
    context.globalAlpha = 1;
  }

  box(context) {
    const box = this.look.box;
    if (!box) return;
    const a = this.placeOf(box.t0, box.r0);
    const b = this.placeOf(box.t1, box.r1);
    context.fillStyle = variable('accent');
    context.globalAlpha = 0.2;
    context.fillRect(a.x, a.y, b.x - a.x, b.y - a.y);
    context.globalAlpha = 1;
    context.strokeStyle = variable('accent');
    context.strokeRect(a.x, a.y, b.x - a.x, b.y - a.y);
  }
}

function pictureHeight(rows) {
  return HEAD + FOOT + Math.min(Math.max(rows * 7, 90), rows <= 64 ? 320 : 420);
}

function clipped(context, text, most) {
  if (context.measureText(text).width <= most) return text;
  let cut = text;
  while (cut && context.measureText(`…${cut}`).width > most) cut = cut.slice(1);
  return `…${cut}`;
}

// A context in CSS pixels on a canvas of as many device pixels as it needs, cleared.
function fitted(canvas, ratio) {
  const [wide, high] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return context;
}
