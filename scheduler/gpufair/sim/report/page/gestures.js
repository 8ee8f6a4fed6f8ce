// Wheel, drag, touch and keys on a picture. Drag marks what to zoom to, with Shift (or the hand) it moves the picture.

const CLICK = 5; // CSS pixels: what moves less is a click

class Gestures {
  constructor(picture, desk) {
    Object.assign(this, { picture, desk, view: picture.view, touches: new Map(), drag: null });
    const { over } = picture;
    over.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    over.addEventListener('pointerdown', (event) => this.down(event));
    over.addEventListener('pointermove', (event) => this.move(event));
    over.addEventListener('pointerup', (event) => this.up(event));
    over.addEventListener('pointercancel', (event) => this.drop(event));
    over.addEventListener('pointerleave', () => this.drag || desk.leave());
    over.addEventListener('dblclick', () => this.view.reset());
    over.addEventListener('keydown', (event) => this.key(event));
    over.addEventListener('blur', () => desk.leave());
  }

  // A page must scroll: the wheel zooms once the picture has been clicked, or with Ctrl.
  wheel(event) {
    const focused = document.activeElement === this.picture.over;
    if (!event.ctrlKey && !event.metaKey && !focused) return;
    event.preventDefault();
    const { tick, row } = this.picture.at(event.offsetX, event.offsetY);
    const factor = Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.0022);
    if (event.shiftKey) this.view.pan(((event.deltaY || event.deltaX) / 600) * (this.view.t1 - this.view.t0));
    else if (event.altKey) this.view.zoom(1, tick, row, factor);
    else this.view.zoom(factor, tick);
  }

  down(event) {
    const { over } = this.picture;
    over.setPointerCapture(event.pointerId);
    this.touches.set(event.pointerId, event);
    const from = this.picture.at(event.offsetX, event.offsetY);
    const panning = event.shiftKey || event.button === 1 || this.desk.hand || event.pointerType === 'touch';
    this.drag = { from, x: event.offsetX, y: event.offsetY, panning, view: { ...this.bounds() }, moved: false };
  }

  bounds() {
    const { t0, t1, r0, r1 } = this.view;
    return { t0, t1, r0, r1 };
  }

  move(event) {
    const before = this.touches.get(event.pointerId);
    if (this.touches.size === 2 && before) return this.pinch(event);
    if (!this.drag) return this.desk.hover(this.picture, event.offsetX, event.offsetY, event);
    const [dx, dy] = [event.offsetX - this.drag.x, event.offsetY - this.drag.y];
    if (Math.hypot(dx, dy) > CLICK) this.drag.moved = true;
    if (!this.drag.moved) return undefined;
    return this.drag.panning ? this.carry(dx, dy) : this.mark(event);
  }

  carry(dx, dy) {
    const { width, height } = this.picture.area;
    const { t0, t1, r0, r1 } = this.drag.view;
    const [ticks, rows] = [(dx / width) * (t1 - t0), (dy / height) * (r1 - r0)];
    this.view.show(t0 - ticks, t1 - ticks, r0 - rows, r1 - rows);
  }

  mark(event) {
    const { width, height } = this.picture.area;
    const x = Math.min(GUTTER + width, Math.max(GUTTER, event.offsetX));
    const to = this.picture.at(x, Math.min(HEAD + height - 1, Math.max(HEAD, event.offsetY)));
    const { from } = this.drag;
    // A mark that is flat means a time, over all rows that are looked at.
    const flat = from.above || Math.abs(event.offsetY - this.drag.y) < 24;
    this.desk.mark({
      t0: Math.min(from.tick, to.tick),
      t1: Math.max(from.tick, to.tick),
      r0: flat ? this.view.r0 : Math.min(from.row, to.row),
      r1: flat ? this.view.r1 : Math.max(from.row, to.row) + 1,
    });
  }

  pinch(event) {
    const [one, other] = [...this.touches.values()];
    const distance = Math.abs(one.offsetX - other.offsetX);
    this.touches.set(event.pointerId, event);
    const [here, there] = [...this.touches.values()];
    const now = Math.abs(here.offsetX - there.offsetX);
    const middle = this.picture.at((here.offsetX + there.offsetX) / 2, 0).tick;
    if (distance > 8 && now > 8) this.view.zoom(distance / now, middle);
    this.drag = null;
  }

  up(event) {
    const { drag } = this;
    const box = this.desk.box();
    this.drop(event);
    if (!drag) return;
    if (drag.moved && box) this.view.show(box.t0, box.t1, box.r0, box.r1);
    if (!drag.moved) this.desk.pin(this.picture, event.offsetX, event.offsetY, event);
  }

  drop(event) {
    this.touches.delete(event.pointerId);
    this.drag = null;
    this.desk.mark(null);
  }

  key(event) {
    const { view } = this;
    const [wide, high] = [view.t1 - view.t0, view.r1 - view.r0];
    const middle = this.desk.look.cursor?.tick ?? (view.t0 + view.t1) / 2;
    const row = this.desk.look.cursor?.row ?? (view.r0 + view.r1) / 2;
    const shifted = event.shiftKey ? 'Shift+' : '';
    const acts = {
      '+': () => view.zoom(0.6, middle),
      '=': () => view.zoom(0.6, middle),
      '-': () => view.zoom(1 / 0.6, middle),
      PageUp: () => view.zoom(1, middle, row, 0.6),
      PageDown: () => view.zoom(1, middle, row, 1 / 0.6),
      0: () => view.reset(),
      Home: () => view.reset(),
      Escape: () => this.desk.leave(true),
      ArrowLeft: () => this.desk.walk(this.picture, -1, 0),
      ArrowRight: () => this.desk.walk(this.picture, 1, 0),
      ArrowUp: () => this.desk.walk(this.picture, 0, -1),
      ArrowDown: () => this.desk.walk(this.picture, 0, 1),
      'Shift+ArrowLeft': () => view.pan(-wide / 6),
      'Shift+ArrowRight': () => view.pan(wide / 6),
      'Shift+ArrowUp': () => view.pan(0, -high / 6),
      'Shift+ArrowDown': () => view.pan(0, high / 6),
    };
    const act = acts[shifted + event.key] ?? acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }
}
