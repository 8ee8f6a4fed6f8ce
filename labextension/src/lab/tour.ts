/**
 * A tour of the lab's last week: one workload at a time, and why it waited, ran or was preempted, as it was recorded.
 */
import { clock, localised } from '../text.js';
import { attribute, element, press, write } from './dom.js';
import type { ITour, ITourStep } from './wire.js';
import { trans } from './words.js';

export class TourView {
  readonly node = element('div', { class: 'jp-gpufair-tour' });

  constructor() {
    const steps = element('div', { class: 'jp-gpufair-buttons' }, this._back, this._next);
    // What changes is read out as a whole: a step is one text.
    const step = element('section', { 'aria-live': 'polite', 'aria-atomic': 'true' }, this._place, this._title, this._who, this._lines, this._terms);
    this.node.append(this._about, step, this._missing, steps);
    this.node.addEventListener('keydown', event => this._key(event));
  }

  show(tour: ITour): void {
    this._tour = tour;
    this._at = 0;
    this._draw();
  }

  private _key(event: KeyboardEvent): void {
    const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (by) {
      event.preventDefault();
      this._go(by);
    }
  }

  private _go(by: number): void {
    const at = this._at + by;
    if (at >= 0 && at < this._tour.steps.length) {
      this._at = at;
      this._draw();
    }
  }

  private _draw(): void {
    const { steps, until_s: nowS } = this._tour;
    const step: ITourStep | undefined = steps[this._at];
    write(this._about, localised(this._tour.about, nowS));
    write(this._missing, this._tour.missing.join(' '));
    write(this._place, step ? trans.__('Step %1 of %2', this._at + 1, steps.length) : '');
    write(this._title, step?.title ?? trans.__('There is nothing to show yet.'));
    const name = step?.name ? `${step.name}, ${step.label}` : step?.label;
    write(this._who, step ? trans.__('%1; %2 pays', name ?? '', step.allocation) : '');
    const told = (step?.lines ?? []).map(line =>
      element('li', {}, element('span', { class: 'jp-gpufair-figure' }, clock(line.at_s, nowS)), ` ${localised(line.text, nowS)}`)
    );
    this._lines.replaceChildren(...told);
    const terms = (step?.terms ?? []).filter(term => this._tour.terms[term]);
    this._terms.replaceChildren(
      ...terms.flatMap(term => {
        const { means, where } = this._tour.terms[term];
        return [element('dt', {}, term), element('dd', {}, `${means} (${where})`)];
      })
    );
    this._terms.hidden = terms.length === 0;
    this._lines.hidden = told.length === 0;
    // Still there for whoever stands on it, so that the arrow keys go on.
    attribute(this._back, 'aria-disabled', String(this._at === 0));
    attribute(this._next, 'aria-disabled', String(this._at >= steps.length - 1));
  }

  private readonly _about = element('p', { class: 'jp-gpufair-small' });
  private readonly _missing = element('p', { class: 'jp-gpufair-small' });
  private readonly _place = element('p', { class: 'jp-gpufair-small' });
  private readonly _title = element('h3');
  private readonly _who = element('p', { class: 'jp-gpufair-small' });
  private readonly _lines = element('ol', { class: 'jp-gpufair-list' });
  private readonly _terms = element('dl', { class: 'jp-gpufair-small' });
  private readonly _back = press(trans.__('Back'), () => this._go(-1));
  private readonly _next = press(trans.__('Next'), () => this._go(1));
  private _tour: ITour = { since_s: 0, until_s: 0, whole_week: false, about: '', steps: [], missing: [], terms: {} };
  private _at = 0;
}
