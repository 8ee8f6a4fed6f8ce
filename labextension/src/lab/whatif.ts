/**
 * Other shares, tried before they are put into force: the next day is played twice, as it is and as it would be.
 */
import { clock } from '../text.js';
import { When, labelled, reasons } from './debate_forms.js';
import { element, press, write } from './dom.js';
import { playedRows } from './played.js';
import type { LabReader } from './reader.js';
import type { IAllocation, IBudgets, IWhatIf } from './wire.js';
import { depth, trans } from './words.js';

const HOURS = 24;

export class WhatIfView {
  readonly node = element('div', { class: 'jp-gpufair-whatif' });

  constructor(private readonly _reader: LabReader) {
    this._apply.disabled = true;
    this.node.append(
      this._shares,
      element('div', { class: 'jp-gpufair-form' }, labelled(trans.__('Why'), this._why), ...this._when.nodes),
      element('div', { class: 'jp-gpufair-buttons' }, this._try, this._apply),
      this._said,
      this._table
    );
  }

  /** Called whenever the budgets are read; what is being typed stays. */
  show(budgets: IBudgets): void {
    const known = budgets.allocations.map(one => `${one.path}=${one.share}`).join(' ');
    if (known === this._known || Object.keys(this._changed).length) {
      return;
    }
    this._known = known;
    this._allocations = budgets.allocations;
    this._inputs.clear();
    this._shares.replaceChildren(...budgets.allocations.map(one => this._row(one)));
  }

  private _row(one: IAllocation): HTMLElement {
    const input = element('input', { type: 'number', min: '0', step: 'any', value: String(one.share) });
    input.addEventListener('input', () => {
      this._apply.disabled = true; // what is applied has been looked at
    });
    this._inputs.set(one.path, input);
    const row = element('label', { title: one.path }, element('span', {}, one.path.split('/').pop() ?? ''), input);
    row.style.setProperty('--level', String(depth(one.path)));
    return row;
  }

  /** Shares that differ from those in force. */
  private get _changed(): Record<string, number> {
    const changed: Record<string, number> = {};
    for (const one of this._allocations) {
      const text = this._inputs.get(one.path)?.value ?? '';
      if (text !== '' && Number(text) !== Number(one.share)) {
        changed[one.path] = Number(text);
      }
    }
    return changed;
  }

  private async _play(): Promise<void> {
    const shares = this._changed;
    if (!Object.keys(shares).length) {
      write(this._said, trans.__('Change a share first.'));
      return;
    }
    this._try.disabled = true;
    write(this._said, trans._n('Playing the next hour twice…', 'Playing the next %1 hours twice…', HOURS));
    try {
      this._tell(await this._reader.whatIf(shares, HOURS));
      this._apply.disabled = false;
    } catch (error) {
      this._table.replaceChildren();
      write(this._said, error instanceof Error ? error.message : String(error));
    } finally {
      this._try.disabled = false;
    }
  }

  private _tell(found: IWhatIf): void {
    const said = [
      trans._n(
        'The next hour, as it is → as it would be, if the same people submit the same as yesterday.',
        'The next %1 hours, as it is → as it would be, if the same people submit the same as yesterday.',
        HOURS
      )
    ];
    if (found.protected) {
      const [all, kept] = [found.protected, found.protections_kept];
      said.push(trans._n('%2 of %1 protection is kept.', '%2 of %1 protections are kept.', all, kept));
    }
    write(this._said, said.join(' '));
    this._found = found;
    this._table.replaceChildren(...playedRows(found));
  }

  private async _divide(): Promise<void> {
    const seen = Object.fromEntries(this._allocations.map(one => [one.path, String(one.share)]));
    this._apply.disabled = true;
    try {
      const terms = { ...this._when.terms, why: this._why.value, preview: this._found };
      const made = await this._reader.divide(this._changed, seen, terms);
      const at = made.from_s ?? 0;
      write(
        this._said,
        made.state === 'accepted'
          ? trans.__('Comes into force at %1. Protections that were granted then stay.', clock(at, Date.now() / 1000))
          : trans.__('In force from now on. Protections that were granted stay.')
      );
    } catch (error) {
      write(this._said, error instanceof Error ? error.message : String(error));
      return;
    }
    this._inputs.clear();
    this._why.value = '';
    this.show(await this._reader.budgets());
  }

  private readonly _shares = element('div', { class: 'jp-gpufair-shares', role: 'group', 'aria-label': trans.__('Shares') });
  private readonly _said = element('p', { class: 'jp-gpufair-small', role: 'status' });
  private readonly _table = element('table', { class: 'jp-gpufair-table' });
  private readonly _try = press(trans.__('Try'), () => void this._play());
  private readonly _apply = press(trans.__('Apply'), () => void this._divide());
  private readonly _why = reasons();
  private readonly _when = new When();
  private _found: IWhatIf | null = null;
  private readonly _inputs = new Map<string, HTMLInputElement>();
  private _allocations: IAllocation[] = [];
  private _known = '';
}
