/**
 * One allocation over time: what it was owed, and what it got, as a small chart with a table behind it.
 */
import { clock } from '../text.js';
import { trans } from '../trans.js';
import { element, Rows, write } from './dom.js';
import { stands } from './figures.js';
import type { IAllocation, ICourse, ICoursesInPool, IOverTime } from './wire.js';
import { gpuTime, gpus } from './words.js';

/** Of a week: three hours each. */
export const BINS = 56;
const AGAIN_MS = 60_000; // it changes by the hour
const HIGH = 100;

export class CourseView {
  readonly node = element('details', { class: 'jp-gpufair-course' });

  constructor(
    private readonly _path: string,
    private readonly _read: (path: string) => Promise<IOverTime>
  ) {
    const summary = element('summary', { 'aria-label': trans.__('%1 over time', _path) }, trans.__('Over time'));
    this.node.append(summary);
    this.node.addEventListener('toggle', () => {
      this.node.append(this._now, this._charts); // not before: of hundreds of rows few are ever opened
      void this._refresh();
    });
  }

  /** How it stands now; what was, is asked for while it is open. */
  show(one: IAllocation): void {
    if (this.node.open) {
      write(this._now, stands(one));
      void this._refresh();
    }
    this._one = one;
  }

  private async _refresh(): Promise<void> {
    if (!this.node.open || Date.now() - this._askedMs < AGAIN_MS) {
      return;
    }
    this._askedMs = Date.now();
    try {
      const seen = await this._read(this._path);
      this._several = seen.pools.length > 1;
      this._rows.show(seen.pools);
      write(this._now, this._one === null ? '' : stands(this._one));
    } catch (error) {
      this._askedMs = -Infinity;
      write(this._now, error instanceof Error ? error.message : String(error));
    }
  }

  private _made(chart: Chart): HTMLElement {
    this._shown.set(chart.node, chart);
    return chart.node;
  }

  private readonly _now = element('p', { class: 'jp-gpufair-small', role: 'status' });
  private readonly _charts = element('div');
  private readonly _rows = new Rows<ICoursesInPool>(
    this._charts,
    pool => pool.pool,
    () => this._made(new Chart(this._path)),
    (made, pool) => this._shown.get(made)?.show(pool, this._several)
  );
  private readonly _shown = new WeakMap<HTMLElement, Chart>();
  private _several = false;
  private _one: IAllocation | null = null;
  private _askedMs = -Infinity;
}

/** How long a bin was: the last one may have just begun. */
function lengths(pool: ICoursesInPool, count: number): number[] {
  return Array.from({ length: count }, (_, at) => Math.max(1, Math.min(pool.bin_s, pool.end_s - pool.start_s - at * pool.bin_s)));
}

/** GPUs on average in each bin. */
export function averages(amounts: number[], pool: ICoursesInPool): number[] {
  return lengths(pool, amounts.length).map((length, at) => amounts[at] / length);
}

const sum = (amounts: number[]) => amounts.reduce((a, b) => a + b, 0);

/** What the chart shows, for those who do not see it. */
export function told(course: ICourse): string {
  const [owed, charged] = [sum(course.owed_gpu_s), sum(course.charged_gpu_s)];
  return trans.__('%1 charged, %2 owed', gpuTime(charged), gpuTime(owed));
}

/** The course in one pool. */
class Chart {
  readonly node = element('figure');

  constructor(private readonly _path: string) {
    this.node.append(
      this._told,
      this._picture,
      element('div', { class: 'jp-gpufair-ends' }, this._from, this._top, element('span', {}, trans.__('now'))),
      element(
        'div',
        { class: 'jp-gpufair-legend' },
        element('span', { class: 'jp-gpufair-swatch' }, trans.__('charged')),
        element('span', { class: 'jp-gpufair-line' }, trans.__('owed'))
      ),
      this._table
    );
    this._table.addEventListener('toggle', () => this._fill());
  }

  show(pool: ICoursesInPool, named: boolean): void {
    const none = { path: this._path, leaf: true, entitlement: 0, owed_gpu_s: [], charged_gpu_s: [] };
    const course = pool.allocations.find(one => one.path === this._path) ?? none;
    const [owed, charged] = [averages(course.owed_gpu_s, pool), averages(course.charged_gpu_s, pool)];
    const most = Math.max(1, ...owed, ...charged);
    write(this._told, named ? `${pool.pool} · ${told(course)}` : told(course));
    this._picture.replaceChildren(picture(owed, charged, most, told(course)));
    write(this._from, clock(pool.start_s, pool.end_s));
    write(this._top, trans.__('up to %1', gpus(Math.round(10 * most) / 10)));
    this._rows = () => rows(pool, course);
    this._fill();
  }

  /** The same as text, made while somebody looks. */
  private _fill(): void {
    if (this._table.open) {
      this._body.replaceChildren(this._rows());
    }
  }

  private readonly _told = element('figcaption', { class: 'jp-gpufair-small' });
  private readonly _picture = element('div', { class: 'jp-gpufair-chart' });
  private readonly _from = element('span');
  private readonly _top = element('span');
  private readonly _body = element('div');
  private readonly _table = element('details', {}, element('summary', {}, trans.__('As a table')), this._body);
  private _rows: () => HTMLElement = () => element('table');
}

function picture(owed: number[], charged: number[], most: number, name: string): Element {
  const y = (value: number) => HIGH - (HIGH * value) / most;
  const bars = charged.map((value, at) =>
    drawn('rect', { class: 'jp-gpufair-charged', x: at + 0.1, width: 0.8, y: y(value), height: HIGH - y(value) })
  );
  // A step for each bin: what is owed does not grow from one to the next.
  const points = owed.flatMap((value, at) => [`${at},${y(value)}`, `${at + 1},${y(value)}`]).join(' ');
  const box = `0 0 ${Math.max(1, charged.length)} ${HIGH}`;
  return drawn(
    'svg',
    { viewBox: box, preserveAspectRatio: 'none', role: 'img', 'aria-label': name },
    ...bars,
    drawn('polyline', { class: 'jp-gpufair-owed', points })
  );
}

function drawn(tag: string, attributes: Record<string, string | number>, ...children: Element[]): Element {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

function rows(pool: ICoursesInPool, course: ICourse): HTMLElement {
  const head = [trans.__('From'), trans.__('Owed'), trans.__('Charged')].map(text => element('th', { scope: 'col' }, text));
  const body = course.owed_gpu_s.map((owed, at) =>
    element(
      'tr',
      {},
      element('th', { scope: 'row' }, clock(pool.start_s + at * pool.bin_s, pool.end_s)),
      element('td', {}, gpuTime(owed)),
      element('td', {}, gpuTime(course.charged_gpu_s[at]))
    )
  );
  const made = element('table', { class: 'jp-gpufair-table' }, element('thead', {}, element('tr', {}, ...head)));
  made.append(element('tbody', {}, ...body));
  return made;
}
