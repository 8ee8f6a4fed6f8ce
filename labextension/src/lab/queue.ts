/**
 * Who waits, in the order in which they will be served; each says why when it is opened.
 */
import { Rows, element, press, write } from './dom.js';
import { type Teams, teamOf } from './teams.js';
import type { IExplanation, IQueue, IWorkload } from './wire.js';
import { localised } from '../text.js';
import { applicable, asked, explained, nameOf, trans, when } from './words.js';

/** So many rows are drawn at first, and again with each press of the button: nobody reads thousands. */
const PAGE = 200;

export class QueueView {
  readonly node = element('div', { class: 'jp-gpufair-queue' });

  constructor(
    private readonly _teams: Teams,
    private readonly _why: (id: string) => Promise<IExplanation | null>,
    /** Makes the change that is named, once its owner agrees; whether it was made. Absent: there is no button for it. */
    private readonly _apply?: (id: string, why: IExplanation) => Promise<boolean>
  ) {
    const list = element('ol', { class: 'jp-gpufair-list', 'aria-label': trans.__('Queue') });
    this._filter.addEventListener('input', () => this._draw());
    this._more.hidden = true;
    this.node.append(this._filter, this._none, list, this._more);
    this._rows = new Rows<IWorkload>(list, one => one.id, one => this._make(one), (row, one) => this._update(row, one));
  }

  show(queue: IQueue): void {
    this._queue = queue;
    this._several = new Set(queue.workloads.flatMap(one => one.pools ?? [])).size > 1;
    this._draw();
  }

  private _draw(): void {
    const word = this._filter.value.trim().toLowerCase();
    const fits = (one: IWorkload) =>
      [nameOf(one), one.user, one.allocation, one.id].some(text => text.toLowerCase().includes(word));
    const found = word ? this._queue.workloads.filter(fits) : this._queue.workloads;
    this._rows.show(found.slice(0, this._shown));
    const left = found.length - this._shown;
    this._more.hidden = left <= 0;
    write(this._more, trans.__('Show %1 of %2 more', Math.min(left, PAGE), left));
    const all = this._queue.workloads.length;
    const nobody = all ? trans._n('The only one does not fit.', 'None of %1 fits.', all) : trans.__('Nobody waits.');
    write(this._none, found.length ? '' : nobody);
    this._filter.hidden = this._queue.workloads.length === 0;
  }

  private _make(workload: IWorkload): HTMLElement {
    const reasons = element('div', { class: 'jp-gpufair-why', role: 'status' });
    const apply = element('div', { class: 'jp-gpufair-buttons' });
    const card = element('details', {}, element('summary'), reasons, apply);
    card.addEventListener('toggle', () => {
      if (card.open) {
        void this._tell(workload.id, reasons, apply);
      }
    });
    return element('li', {}, card);
  }

  private _update(row: HTMLElement, one: IWorkload): void {
    const nowS = this._queue.now_s;
    const [card] = row.children as unknown as HTMLElement[];
    const [summary, reasons, apply] = card.children as unknown as HTMLElement[];
    row.style.setProperty('--team', this._teams.colour(teamOf(one.allocation)));
    const parts = [`${one.position ?? '–'}. ${nameOf(one)}`, one.user, one.allocation, asked(one), this._several ? one.pools.join(', ') : '', when(one, nowS)];
    write(summary, parts.filter(part => part).join(' · '));
    if ((card as HTMLDetailsElement).open) {
      void this._tell(one.id, reasons, apply);
    }
  }

  private async _tell(id: string, reasons: HTMLElement, apply: HTMLElement): Promise<void> {
    let lines: string[];
    let why: IExplanation | null = null;
    try {
      why = await this._why(id);
      lines = why === null ? [trans.__('It does not wait any more.')] : explained(why, this._queue.now_s);
    } catch (error) {
      lines = [error instanceof Error ? error.message : String(error)];
    }
    write(reasons, lines.join('\n'));
    this._offer(id, why, reasons, apply);
  }

  /** A button for the change that is named, to whoever may make it. */
  private _offer(id: string, why: IExplanation | null, reasons: HTMLElement, apply: HTMLElement): void {
    const make = this._apply;
    const change = make && applicable(why) ? JSON.stringify(why?.change?.amend) : '';
    if (apply.dataset.change === change) {
      return;
    }
    apply.dataset.change = change;
    if (!make || !why || !change) {
      apply.replaceChildren();
      return;
    }
    const button = press(trans.__('Apply'), () => {
      button.disabled = true;
      void make(id, why).then(async made => {
        button.disabled = false;
        if (made) {
          await this._tell(id, reasons, apply);
        }
      });
    });
    button.setAttribute('aria-label', trans.__('Apply: %1', localised(why.change?.text ?? '', this._queue.now_s)));
    apply.replaceChildren(button);
  }

  private readonly _filter = element('input', {
    class: 'jp-gpufair-filter',
    type: 'search',
    placeholder: trans.__('Filter by name, user or budget'),
    'aria-label': trans.__('Filter the queue')
  });
  private _several = false;
  private readonly _none = element('p', { class: 'jp-gpufair-small' });
  private readonly _more = press('', () => {
    this._shown += PAGE;
    this._draw();
  });
  private readonly _rows: Rows<IWorkload>;
  private _queue: IQueue = { now_s: 0, workloads: [] };
  private _shown = PAGE;
}
