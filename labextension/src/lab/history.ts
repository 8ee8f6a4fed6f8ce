/**
 * GPU × time: a row for each GPU, coloured by team, hatched where it could be preempted, with an edge where it had to go.
 */
import { Latest } from '../latest.js';
import { clock } from '../text.js';
import { trans } from '../trans.js';
import { Rows, attribute, element, style, write } from './dom.js';
import { exposed, percent, runs } from './figures.js';
import { type Teams, teamOf } from './teams.js';
import type { IGpuHistory, INodeHistory, IStay } from './wire.js';
import { gpus } from './words.js';

const HOURS = [1, 6, 24];
const AGAIN_S = 15; // a picture of an hour moves by a pixel in so long
const TOLD = 12; // stays of a node that are named

export class HistoryView {
  readonly node = element('details', { class: 'jp-gpufair-past' });

  /** @param now - Unix seconds by the server's clock */
  constructor(
    private readonly _teams: Teams,
    private readonly _read: (hours: number) => Promise<IGpuHistory>,
    private readonly _now: () => number
  ) {
    for (const hours of HOURS) {
      const option = element('option', { value: String(hours) }, trans._n('The last hour', 'The last %1 hours', hours));
      option.selected = hours === 6;
      this._hours.append(option);
    }
    this._hours.addEventListener('change', () => void this._ask());
    this.node.addEventListener('toggle', () => void this.refresh());
    const list = element('div', { class: 'jp-gpufair-tracks', role: 'group', 'aria-label': trans.__('GPUs over time') });
    list.addEventListener('keydown', event => walk(list, event));
    this.node.append(
      element('summary', {}, trans.__('GPUs over time')),
      this._hours,
      key(),
      this._ends,
      list,
      this._about
    );
    this._rows = new Rows<INodeHistory>(list, one => one.name, one => this._make(one), (row, one) => this._update(row, one));
    // Of a large lab few nodes are on the screen: the others are drawn when they get there.
    this._watch =
      typeof IntersectionObserver === 'undefined'
        ? null
        : new IntersectionObserver(changes => this._came(changes), { rootMargin: '200px' });
  }

  /** Ask, if it is open and was not asked a moment ago. */
  async refresh(): Promise<void> {
    if (this.node.open && this._now() - this._askedS >= AGAIN_S) {
      await this._ask();
    }
  }

  private async _ask(): Promise<void> {
    this._askedS = this._now();
    const isLatest = this._answers.ask();
    try {
      const seen = await this._read(Number(this._hours.value) || 6);
      if (isLatest()) {
        this._show(seen);
      }
    } catch (error) {
      this._askedS = -Infinity;
      write(this._about, error instanceof Error ? error.message : String(error));
    }
  }

  private _show(seen: IGpuHistory): void {
    this._seen = seen;
    this._nodes = new Map(seen.nodes.map(node => [node.name, node]));
    const [from, to] = this._ends.children as unknown as HTMLElement[];
    write(from, clock(seen.since_s, seen.now_s));
    write(to, clock(seen.now_s, seen.now_s));
    this._rows.show(seen.nodes);
    this._tell();
  }

  private _make(node: INodeHistory): HTMLElement {
    const track = element('button', { type: 'button', class: 'jp-gpufair-track' });
    track.addEventListener('click', () => {
      this._chosen = node.name;
      this._tell();
    });
    const made = element('div', { class: 'jp-gpufair-track-row' }, element('span', { class: 'jp-gpufair-small' }), track);
    made.dataset.node = node.name;
    if (this._watch) {
      this._watch.observe(made);
    } else {
      this._visible.add(made);
    }
    return made;
  }

  private _update(row: HTMLElement, node: INodeHistory): void {
    const [name, track] = row.children as unknown as HTMLElement[];
    write(name, node.name);
    style(row, `--gpus: ${node.gpus}`);
    attribute(track, 'tabindex', node.name === (this._chosen ?? this._nodes.keys().next().value) ? '0' : '-1');
    if (this._visible.has(row)) {
      this._draw(row, node);
    } else {
      attribute(track, 'aria-label', node.name);
    }
  }

  private _came(changes: IntersectionObserverEntry[]): void {
    for (const change of changes) {
      const row = change.target as HTMLElement;
      const node = this._nodes.get(row.dataset.node ?? '');
      if (change.isIntersecting && node) {
        this._visible.add(row);
        this._draw(row, node);
      } else {
        this._visible.delete(row);
      }
    }
  }

  private _draw(row: HTMLElement, node: INodeHistory): void {
    const track = row.children[1] as HTMLElement;
    attribute(track, 'aria-label', nodeTold(node, this._seen));
    track.replaceChildren(...node.stays.flatMap(stay => pieces(stay, this._seen, this._teams.colour(teamOf(stay.allocation)))));
  }

  /** About the chosen node. */
  private _tell(): void {
    const node = this._chosen === undefined ? undefined : this._nodes.get(this._chosen);
    write(this._about, node ? [nodeTold(node, this._seen), ...staysTold(node, this._seen)].join('\n') : '');
  }

  private readonly _hours = element('select', { 'aria-label': trans.__('How far back') });
  private readonly _ends = element('div', { class: 'jp-gpufair-ends', 'aria-hidden': 'true' }, element('span'), element('span'));
  private readonly _about = element('div', { class: 'jp-gpufair-why', role: 'status' });
  private readonly _rows: Rows<INodeHistory>;
  private readonly _watch: IntersectionObserver | null;
  private readonly _visible = new Set<HTMLElement>();
  private _seen: IGpuHistory = { now_s: 0, since_s: 0, nodes: [] };
  private _nodes = new Map<string, INodeHistory>();
  private _chosen: string | undefined;
  private readonly _answers = new Latest();
  private _askedS = -Infinity;
}

/** A stay as elements, one for each run of neighbouring GPUs. */
function pieces(stay: IStay, seen: IGpuHistory, colour: string): HTMLElement[] {
  const span = Math.max(1, seen.now_s - seen.since_s);
  const at = (instant: number) => (100 * (Math.min(Math.max(instant, seen.since_s), seen.now_s) - seen.since_s)) / span;
  const end = stay.to_s ?? seen.now_s;
  const open = exposed(stay, end).map(([begin, until]) => [at(begin), at(until)]);
  const [left, right] = [at(stay.from_s), at(end)];
  const gone = stay.preempted_s !== null && stay.preempted_s >= seen.since_s ? at(stay.preempted_s) : null;
  return runs(stay.rows).flatMap(([row, count]) => {
    const place = `--row: ${row}; --count: ${count}; `;
    const made = [box('jp-gpufair-stay', `${place}--team: ${colour}; left: ${left}%; width: ${right - left}%`)];
    made.push(...open.map(([begin, until]) => box('jp-gpufair-exposed', `${place}left: ${begin}%; width: ${until - begin}%`)));
    if (gone !== null) {
      made.push(box('jp-gpufair-gone', `${place}left: ${gone}%`));
    }
    return made;
  });
}

function box(kind: string, look: string): HTMLElement {
  const made = element('span', { class: kind });
  made.style.cssText = look;
  return made;
}

/** A node in one sentence. */
export function nodeTold(node: INodeHistory, seen: IGpuHistory): string {
  const span = (seen.now_s - seen.since_s) * node.gpus;
  const held = node.stays.reduce((sum, one) => {
    const length = (one.to_s ?? seen.now_s) - Math.max(one.from_s, seen.since_s);
    return sum + Math.max(0, length) * one.rows.length;
  }, 0);
  const preempted = node.stays.filter(one => one.preempted_s !== null && one.preempted_s >= seen.since_s).length;
  const use = trans.__('%1: %2, held for %3 of the time', node.name, gpus(node.gpus), percent(span > 0 ? held / span : 0));
  return preempted ? trans._n('%2, %1 preemption', '%2, %1 preemptions', preempted, use) : use;
}

/** The last stays of a node, the newest first. */
export function staysTold(node: INodeHistory, seen: IGpuHistory): string[] {
  const last = [...node.stays].sort((one, other) => other.from_s - one.from_s);
  const lines = last.slice(0, TOLD).map(one => {
    const who = trans.__('%1: %2 (%3)', gpus(one.rows.length), one.user, one.allocation);
    const from = clock(one.from_s, seen.now_s);
    const line = one.to_s === null ? trans.__('%1, since %2', who, from) : trans.__('%1, %2 to %3', who, from, clock(one.to_s, seen.now_s));
    return one.preempted_s === null ? line : trans.__('%1, preempted at %2', line, clock(one.preempted_s, seen.now_s));
  });
  return last.length > TOLD ? [...lines, trans._n('and %1 earlier one', 'and %1 earlier ones', last.length - TOLD)] : lines;
}

function key(): HTMLElement {
  return element(
    'div',
    { class: 'jp-gpufair-legend' },
    element('span', { class: 'jp-gpufair-key-exposed' }, trans.__('may be preempted')),
    element('span', { class: 'jp-gpufair-key-gone' }, trans.__('had to make room'))
  );
}

/** One stop for Tab; arrows walk from there. */
function walk(list: HTMLElement, event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const here = document.activeElement;
  const row = here?.parentElement;
  if (step === undefined || !(here instanceof HTMLElement) || row?.parentElement !== list) {
    return;
  }
  const next = (step > 0 ? row.nextElementSibling : row.previousElementSibling)?.children[1];
  if (next instanceof HTMLElement) {
    event.preventDefault();
    here.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
