/**
 * Budgets as people discuss them: what is asked for and why, the decision, what comes when, and who changed what before.
 */
import { clock } from '../text.js';
import { AskForm, DecisionForm } from './debate_forms.js';
import { type IBudgetChange, type IRequest, type IRequests, changed, played, ranked, standing, times, wish } from './debating.js';
import { Rows, element, press, write } from './dom.js';
import { playedRows } from './played.js';
import type { LabReader } from './reader.js';
import type { IBudgets } from './wire.js';
import { trans } from './words.js';

const SETTLED = 5;
const LISTED = 100;
const PAGE = 10;

export class DebateView {
  readonly node = element('div', { class: 'jp-gpufair-debate' });

  /** @param decided - called when somebody else has settled what the reader asked for, as far as this page has seen it open */
  constructor(
    private readonly _reader: LabReader,
    private readonly _now: () => number,
    private readonly _decided: (one: IRequest) => void = () => undefined
  ) {
    const heading = element('h4', {}, trans.__('Requests'));
    const list = element('div', { role: 'list', 'aria-label': trans.__('Requests') });
    const ask = element('details', {}, element('summary', {}, trans.__('Ask for a change…')), this._form.node);
    this._history.addEventListener('toggle', () => void this._showHistory());
    this.node.append(heading, this._nothing, list, ask, this._history);
    this._rows = new Rows<IRequest, HTMLElement>(
      list,
      one => String(one.id),
      () => element('div', { class: 'jp-gpufair-request', role: 'listitem' }),
      (card, one) => this._update(card, one)
    );
  }

  /** Whether something of the reader's waits for a decision. */
  get awaits(): boolean {
    return this._open.size > 0;
  }

  /** @param known - the budgets, if they have just been read */
  async refresh(known?: IBudgets): Promise<void> {
    const [answer, budgets] = await Promise.all([this._reader.requests(LISTED), known ?? this._reader.budgets()]);
    this.show(answer, budgets);
  }

  show(answer: IRequests, budgets: IBudgets): void {
    this._shares = new Map(budgets.allocations.map(one => [one.path, String(one.share)]));
    this._form.know(budgets.allocations);
    const shown = ranked(answer.requests, SETTLED);
    this._nothing.hidden = shown.length > 0;
    this._rows.show(shown);
    for (const one of answer.requests.filter(one => one.user === answer.user)) {
      if (one.state === 'open') {
        this._open.add(one.id);
      } else if (this._open.delete(one.id) && one.decision?.by !== answer.user) {
        this._decided(one);
      }
    }
  }

  /** A card is drawn anew only where its request has changed: what is being typed stays. */
  private _update(card: HTMLElement, one: IRequest): void {
    const nowS = this._now();
    const title = wish(one, this._shares);
    const known = JSON.stringify([title, standing(one, nowS), one.may]);
    if (card.dataset.known === known) {
      return;
    }
    card.dataset.known = known;
    card.dataset.state = one.state;
    const small = (text: string) => (text ? element('span', { class: 'jp-gpufair-small' }, text) : null);
    const parts = [
      element('span', { class: 'jp-gpufair-budget-name', title }, title),
      small(`#${one.id} ${one.user}: ${standing(one, nowS)}`),
      small(times(one, nowS)),
      element('p', { class: 'jp-gpufair-reasons' }, one.why),
      small(one.decision?.words ? `${one.decision.by}: ${one.decision.words}` : ''),
      one.state === 'over' ? small(one.problem) : null,
      one.preview ? this._preview(one) : null,
      one.may.decide ? this._decision(one) : null,
      one.may.withdraw && !one.may.decide ? this._withdrawal(one) : null
    ];
    card.replaceChildren(...parts.filter(part => part !== null));
  }

  private _preview(one: IRequest): HTMLElement {
    const table = element('table', { class: 'jp-gpufair-table' });
    const said = element('p', { class: 'jp-gpufair-small', role: 'status' });
    const box = element('details', {}, element('summary', {}, trans.__('What %1 looked at', one.preview?.by ?? '')), said);
    box.append(element('div', { class: 'jp-gpufair-scroll', tabindex: '0' }, table));
    box.addEventListener('toggle', () => {
      if (box.open && !table.firstChild) {
        void this._reader
          .request(one.id)
          .then(whole => {
            const found = played(whole.preview?.found);
            if (found) {
              table.replaceChildren(...playedRows(found));
            } else {
              write(said, trans.__('What was attached is no what-if.'));
            }
          })
          .catch(error => write(said, text(error)));
      }
    });
    return box;
  }

  private _decision(one: IRequest): HTMLElement {
    const form = new DecisionForm(this._reader, one, () => this.refresh());
    return element('details', {}, element('summary', {}, trans.__('Decide…')), form.node);
  }

  private _withdrawal(one: IRequest): HTMLElement {
    const said = element('p', { class: 'jp-gpufair-small', role: 'status' });
    const button = press(trans.__('Withdraw'), () => {
      button.disabled = true;
      this._reader
        .decide(one.id, 'withdraw', {})
        .then(() => this.refresh())
        .catch(error => {
          button.disabled = false;
          write(said, text(error));
        });
    });
    button.setAttribute('aria-label', trans.__('Withdraw request %1', one.id));
    return element('div', { class: 'jp-gpufair-buttons' }, button, said);
  }

  private async _showHistory(before = 0): Promise<void> {
    if (!this._history.open) {
      return;
    }
    const list = this._changes;
    try {
      const found = await this._reader.budgetHistory(before, PAGE);
      if (!before) {
        list.replaceChildren();
      }
      list.append(...found.changes.map(one => entry(one, this._now())));
      this._earlier.replaceChildren();
      const last = found.changes[found.changes.length - 1];
      if (found.more && last) {
        this._earlier.append(press(trans.__('Earlier…'), () => void this._showHistory(last.number)));
      }
    } catch (error) {
      this._earlier.replaceChildren(element('p', { class: 'jp-gpufair-small', role: 'alert' }, text(error)));
    }
  }

  private readonly _form: AskForm = new AskForm(this._reader, () => this.refresh());
  private readonly _nothing = element('p', { class: 'jp-gpufair-small' }, trans.__('Nobody asks for anything.'));
  private readonly _changes = element('ol', { class: 'jp-gpufair-list' });
  private readonly _earlier = element('div', { class: 'jp-gpufair-buttons' });
  private readonly _history = element(
    'details',
    { class: 'jp-gpufair-history' },
    element('summary', {}, trans.__('History of the budgets')),
    this._changes,
    this._earlier
  );
  private readonly _rows: Rows<IRequest, HTMLElement>;
  /** Requests of the reader's that were open when they were last seen. */
  private readonly _open = new Set<number>();
  private _shares: ReadonlyMap<string, string> = new Map();
}

function entry(one: IBudgetChange, nowS: number): HTMLElement {
  const of = one.request === null ? '' : ` (#${one.request})`;
  const row = element('li', { class: 'jp-gpufair-request' }, element('span', {}, `${clock(one.at_s, nowS)} · ${one.by}${of}`));
  row.append(...[one.why, ...changed(one)].filter(Boolean).map(line => element('span', { class: 'jp-gpufair-small' }, line)));
  return row;
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
