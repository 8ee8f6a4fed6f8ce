// What part of the time and of the rows is looked at. All pictures and charts share it, so that they zoom together.

class View {
  constructor(end, rows) {
    Object.assign(this, { end, rows, t0: 0, t1: end, r0: 0, r1: rows, followers: [], pending: false });
  }

  follow(tell) {
    this.followers.push(tell);
  }

  changed() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.followers.forEach((tell) => tell());
    });
  }

  // Look at these; never beyond the ends, never closer than a few ticks or less than four rows.
  show(t0, t1, r0 = this.r0, r1 = this.r1) {
    [this.t0, this.t1] = clamped(t0, t1, this.end, Math.min(this.end, 20));
    [this.r0, this.r1] = clamped(r0, r1, this.rows, Math.min(this.rows, 4));
    this.changed();
  }

  reset() {
    this.show(0, this.end, 0, this.rows);
  }

  // Closer (factor < 1) or farther, with what lies at (t, r) staying where it is.
  zoom(factor, t, r = null, rowFactor = 1) {
    const row = r ?? (this.r0 + this.r1) / 2;
    this.show(
      t - (t - this.t0) * factor,
      t + (this.t1 - t) * factor,
      row - (row - this.r0) * rowFactor,
      row + (this.r1 - row) * rowFactor,
    );
  }

  pan(ticks, rows = 0) {
    this.show(this.t0 + ticks, this.t1 + ticks, this.r0 + rows, this.r1 + rows);
  }

  get whole() {
    return this.t0 === 0 && this.t1 === this.end && this.r0 === 0 && this.r1 === this.rows;
  }
}

function clamped(from, to, end, least) {
  const width = Math.min(end, Math.max(least, to - from));
  const start = Math.min(end - width, Math.max(0, to - from < least ? (from + to - width) / 2 : from));
  return [start, start + width];
}
