/**
 * What operators tell everybody, and the maintenance that is planned: above all else, until the reader has put it aside.
 */
import { clock } from '../text.js';
import { trans } from '../trans.js';
import { Rows, attribute, element, write } from './dom.js';
import type { LabReader } from './reader.js';
import type { IAnnouncements } from './wire.js';

/** One line of the board. */
export interface INews {
  /** By which the reader's browser remembers that it was put aside. */
  key: string;
  severity: 'info' | 'warning' | 'critical';
  /** The severity in words: colours alone say nothing to many. */
  label: string;
  text: string;
  link: string;
  /** Until when it holds; '' if nobody knows. */
  until: string;
}

/** What the board says. */
export function newsOf(told: IAnnouncements, nowS: number): INews[] {
  const labels = { info: trans.__('Note'), warning: trans.__('Warning'), critical: trans.__('Important') };
  const said = told.announcements.map(one => ({
    key: `${one.id}@${one.made_s}`,
    severity: one.severity,
    label: labels[one.severity],
    text: one.text,
    link: /^https?:\/\//.test(one.link) ? one.link : '',
    until: one.until_s === null ? '' : trans.__('until %1', clock(one.until_s, nowS))
  }));
  const planned = told.maintenance.map(plan => ({
    key: `${plan.id}@${plan.at_s}`,
    severity: 'info' as const,
    label: trans.__('Maintenance'),
    text: trans._n('%2 closes at %3', '%2 close at %3', plan.nodes.length, namesOf(plan.nodes), clock(plan.at_s, nowS)),
    link: '',
    until: ''
  }));
  return [...said, ...planned];
}

const KEY = 'gpufair-put-aside';
const MOST_NAMES = 4;

export class BoardView {
  readonly node: HTMLElement;

  constructor(
    private readonly _reader: LabReader,
    private readonly _now: () => number,
    private readonly _store: Pick<Storage, 'getItem' | 'setItem'> | null = storage()
  ) {
    // Polite: it is heard when the reader pauses.
    const list = element('ul', { class: 'jp-gpufair-list', 'aria-live': 'polite' });
    this.node = element('section', { class: 'jp-gpufair-board', 'aria-label': trans.__('Announcements') }, list);
    this.node.hidden = true;
    this._rows = new Rows<INews, HTMLLIElement>(list, one => one.key, one => this._make(one), (row, one) => this._update(row, one));
  }

  /** Look again; a service that is older, or away, announces nothing. */
  async refresh(): Promise<void> {
    try {
      this._show(newsOf(await this._reader.announcements(), this._now()));
    } catch {
      // The sections below say what is wrong.
    }
  }

  private _show(news: INews[]): void {
    this._seen = news;
    const aside = new Set(this._aside());
    const left = news.filter(one => !aside.has(one.key));
    this._rows.show(left);
    this.node.hidden = left.length === 0;
  }

  private _make(one: INews): HTMLLIElement {
    const close = element('button', { type: 'button', class: 'jp-gpufair-button', title: trans.__('Put aside') }, '×');
    attribute(close, 'aria-label', trans.__('Put aside: %1', one.text));
    close.addEventListener('click', () => this._putAside(one));
    const more = one.link
      ? element('a', { href: one.link, target: '_blank', rel: 'noopener noreferrer' }, trans.__('Read more'))
      : null;
    const said = element('span', {}, one.text);
    const label = element('strong', {}, one.label);
    const until = element('span', { class: 'jp-gpufair-small' });
    return element('li', { class: 'jp-gpufair-news', 'data-severity': one.severity }, element('div', {}, label, ' ', said, ' ', more), close, until);
  }

  private _update(row: HTMLLIElement, one: INews): void {
    write(row.lastElementChild as HTMLElement, one.until);
  }

  private _putAside(one: INews): void {
    // Of what is over nothing needs to be remembered.
    const kept = this._aside().filter(key => this._seen.some(other => other.key === key));
    this._forgotten = [...kept, one.key];
    try {
      this._store?.setItem(KEY, JSON.stringify(this._forgotten));
    } catch {
      // Then it comes back with the next page.
    }
    this._show(this._seen);
    // The button is gone: whoever uses the keyboard goes on with the next one.
    this.node.querySelector<HTMLElement>('button')?.focus();
  }

  private _aside(): string[] {
    try {
      const kept: unknown = JSON.parse(this._store?.getItem(KEY) ?? '[]');
      return Array.isArray(kept) ? [...this._forgotten, ...kept.filter(key => typeof key === 'string')] : this._forgotten;
    } catch {
      return this._forgotten;
    }
  }

  private readonly _rows: Rows<INews, HTMLLIElement>;
  private _seen: INews[] = [];
  private _forgotten: string[] = [];
}

function namesOf(nodes: string[]): string {
  const some = nodes.slice(0, MOST_NAMES).join(', ');
  const rest = nodes.length - MOST_NAMES;
  return rest > 0 ? trans._n('%2 and %1 more', '%2 and %1 more', rest, some) : some;
}

/** A browser may have none for this page. */
function storage(): Storage | null {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}
