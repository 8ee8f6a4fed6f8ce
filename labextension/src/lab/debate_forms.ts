/**
 * The forms of a debate: to ask for other budgets, and to decide.
 */
import { type IRequest, type ITerms, instant, localField } from './debating.js';
import { element, press, write } from './dom.js';
import { playedRows } from './played.js';
import type { LabReader } from './reader.js';
import type { IAllocation, IWhatIf } from './wire.js';
import { trans } from './words.js';

const HOURS = 24;
const LONGEST = '4000';

/** When a change begins and ends, for the one who asks and the one who decides. */
export class When {
  readonly nodes: HTMLElement[];

  constructor(fromS: number | null = null, untilS: number | null = null) {
    this._from.value = localField(fromS);
    this._until.value = localField(untilS);
    this.nodes = [labelled(trans.__('From (empty: at once)'), this._from), labelled(trans.__('Until (empty: for good)'), this._until)];
  }

  /** 0 where it is left empty. */
  get terms(): { from_s: number; until_s: number } {
    return { from_s: instant(this._from.value) ?? 0, until_s: instant(this._until.value) ?? 0 };
  }

  private readonly _from = element('input', { type: 'datetime-local' });
  private readonly _until = element('input', { type: 'datetime-local' });
}

export function reasons(): HTMLTextAreaElement {
  return element('textarea', { rows: '3', maxlength: LONGEST });
}

export function labelled(label: string, field: HTMLElement): HTMLElement {
  return element('label', {}, element('span', {}, label), field);
}

export class AskForm {
  readonly node = element('form', { class: 'jp-gpufair-form' });

  /** @param sent - called when something was asked for */
  constructor(
    private readonly _reader: LabReader,
    private readonly _sent: () => Promise<void>
  ) {
    this._unit.append(
      element('option', { value: 'share' }, trans.__('shares')),
      element('option', { value: 'gpus' }, trans.__('GPUs'))
    );
    this._allocation.addEventListener('change', () => this._fill());
    this.node.append(
      labelled(trans.__('Allocation'), this._allocation),
      labelled(trans.__('Wished'), this._amount),
      labelled(trans.__('Measured in'), this._unit),
      labelled(trans.__('Why'), this._why),
      ...this._when.nodes,
      element('div', { class: 'jp-gpufair-buttons' }, this._send),
      this._said
    );
    this.node.addEventListener('submit', event => {
      event.preventDefault();
      void this._ask();
    });
  }

  /** The tree as it is; what is chosen stays. */
  know(allocations: readonly IAllocation[]): void {
    const paths = allocations.map(one => one.path).join('\n');
    this._known = allocations;
    if (paths === this._paths) {
      return;
    }
    const chosen = this._allocation.value;
    this._paths = paths;
    this._allocation.replaceChildren(...allocations.map(one => element('option', { value: one.path }, one.path)));
    if (allocations.some(one => one.path === chosen)) {
      this._allocation.value = chosen;
    } else {
      this._fill();
    }
  }

  private _fill(): void {
    const one = this._known.find(one => one.path === this._allocation.value) ?? this._known[0];
    this._unit.value = 'share';
    this._amount.value = one ? String(one.share) : '';
  }

  private async _ask(): Promise<void> {
    const [path, amount] = [this._allocation.value, Number(this._amount.value)];
    const wish: ITerms = this._unit.value === 'gpus' ? { allocation: path, gpus: amount } : { shares: { [path]: amount } };
    this._send.disabled = true;
    try {
      const { from_s, until_s } = this._when.terms;
      const made = await this._reader.ask({ ...wish, why: this._why.value, from_s, until_s });
      this._why.value = '';
      write(this._said, trans.__('Request %1 is open; its owner is told.', made.id));
      await this._sent();
    } catch (error) {
      write(this._said, error instanceof Error ? error.message : String(error));
    } finally {
      this._send.disabled = false;
    }
  }

  private readonly _allocation = element('select');
  private readonly _amount = element('input', { type: 'number', min: '0', step: 'any', required: '' });
  private readonly _unit = element('select');
  private readonly _why = element('textarea', { rows: '3', maxlength: LONGEST, required: '' });
  private readonly _when = new When();
  private readonly _send = element('button', { type: 'submit', class: 'jp-gpufair-button' }, trans.__('Ask'));
  private readonly _said = element('p', { class: 'jp-gpufair-small', role: 'status' });
  private _known: readonly IAllocation[] = [];
  private _paths = '';
}

export class DecisionForm {
  readonly node = element('div', { class: 'jp-gpufair-form' });

  /** @param decided - called when it was */
  constructor(
    private readonly _reader: LabReader,
    private readonly _request: IRequest,
    private readonly _decided: () => Promise<void>
  ) {
    this._when = new When(_request.from_s, _request.until_s);
    for (const [path, share] of Object.entries(_request.shares)) {
      const input = element('input', { type: 'number', min: '0', step: 'any', value: share });
      input.addEventListener('input', () => this._forget());
      this._inputs.set(path, input);
      this.node.append(labelled(path, input));
    }
    this.node.append(
      ...this._when.nodes,
      labelled(trans.__('Words'), this._words),
      element('div', { class: 'jp-gpufair-buttons' }, this._try, this._accept, this._refuse),
      this._said,
      element('div', { class: 'jp-gpufair-scroll', tabindex: '0' }, this._table)
    );
    for (const [button, label] of [
      [this._try, trans.__('Try request %1', _request.id)],
      [this._accept, trans.__('Accept request %1', _request.id)],
      [this._refuse, trans.__('Refuse request %1', _request.id)]
    ] as const) {
      button.setAttribute('aria-label', label);
    }
  }

  private get _shares(): Record<string, number> {
    return Object.fromEntries([...this._inputs].map(([path, input]) => [path, Number(input.value)]));
  }

  /** What was looked at is of other shares. */
  private _forget(): void {
    this._found = null;
    this._table.replaceChildren();
  }

  private async _play(): Promise<void> {
    write(this._said, trans._n('Playing the next hour twice…', 'Playing the next %1 hours twice…', HOURS));
    await this._do(async () => {
      this._found = await this._reader.whatIf(this._shares, HOURS);
      this._table.replaceChildren(...playedRows(this._found));
      write(this._said, trans.__('This is kept with the decision.'));
    });
  }

  private async _settle(verb: 'accept' | 'refuse'): Promise<void> {
    const words = this._words.value;
    if (verb === 'refuse' && !words.trim()) {
      write(this._said, trans.__('Say why not.'));
      this._words.focus();
      return;
    }
    // Only what was changed: what was asked for in GPUs is worked out anew.
    const same = Object.entries(this._request.shares).every(([path, share]) => Number(share) === this._shares[path]);
    const terms: ITerms = { words, ...this._when.terms, ...(same ? {} : { shares: this._shares }) };
    await this._do(async () => {
      await this._reader.decide(
        this._request.id,
        verb,
        verb === 'refuse' ? { words } : { ...terms, ...(this._found ? { preview: this._found } : {}) }
      );
      await this._decided();
    });
  }

  private async _do(deed: () => Promise<void>): Promise<void> {
    const buttons = [this._try, this._accept, this._refuse];
    buttons.forEach(button => (button.disabled = true));
    try {
      await deed();
    } catch (error) {
      write(this._said, error instanceof Error ? error.message : String(error));
    } finally {
      buttons.forEach(button => (button.disabled = false));
    }
  }

  private readonly _inputs = new Map<string, HTMLInputElement>();
  private readonly _when: When;
  private readonly _words = reasons();
  private readonly _try = press(trans.__('Try'), () => void this._play());
  private readonly _accept = press(trans.__('Accept'), () => void this._settle('accept'));
  private readonly _refuse = press(trans.__('Refuse'), () => void this._settle('refuse'));
  private readonly _said = element('p', { class: 'jp-gpufair-small', role: 'status' });
  private readonly _table = element('table', { class: 'jp-gpufair-table' });
  private _found: IWhatIf | null = null;
}
