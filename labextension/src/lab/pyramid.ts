/**
 * Where GPU time went: four levels side by side, each of which opens the causes of its loss.
 */
import { Latest } from '../latest.js';
import { trans } from '../trans.js';
import { attribute, element, write } from './dom.js';
import { LEVELS, type LevelName, causes, levelName, meaning, ratio } from './figures.js';
import type { LabReader } from './reader.js';
import type { IDeliveries, IPyramid, IPyramidOfPool } from './wire.js';
import { clock } from '../text.js';

/** Hours back from now; 0: the budgets' window. */
const PERIODS = [0, 24, 720];
const AGAIN_S = 30; // figures are of whole hours: they are not asked for at each event

let number = 0;

export class PyramidView {
  readonly node = element('div', { class: 'jp-gpufair-pyramid' });

  constructor(
    private readonly _reader: LabReader,
    private readonly _now: () => number
  ) {
    const id = `gpufair-causes-${(number += 1)}`;
    this._causes.id = id;
    for (const hours of PERIODS) {
      this._period.append(element('option', { value: String(hours) }, periodName(hours)));
    }
    this._period.addEventListener('change', () => void this._again());
    this._pool.addEventListener('change', () => this._draw());
    for (const name of LEVELS) {
      const bar = element('span', { class: 'jp-gpufair-column', 'aria-hidden': 'true' });
      const figure = element('span', { class: 'jp-gpufair-figure' });
      const button = element('button', { type: 'button', class: 'jp-gpufair-level', 'aria-controls': id }, bar);
      button.append(element('span', { class: 'jp-gpufair-level-name' }, levelName(name)), figure);
      button.title = meaning(name);
      button.addEventListener('click', () => {
        this._chosen = this._chosen === name ? null : name;
        this._draw();
      });
      this._levels.append(button);
      this._buttons.set(name, button);
    }
    this.node.append(
      element('div', { class: 'jp-gpufair-choices' }, this._period, this._pool),
      this._levels,
      this._causes,
      this._span
    );
  }

  /** Ask, unless it was asked a moment ago. */
  async refresh(): Promise<void> {
    if (this._now() - this._askedS >= AGAIN_S) {
      await this._ask();
    }
  }

  private async _again(): Promise<void> {
    try {
      await this._ask();
    } catch (error) {
      write(this._span, error instanceof Error ? error.message : String(error));
    }
  }

  private async _ask(): Promise<void> {
    const asked = this._now();
    const hours = Number(this._period.value);
    const sinceS = hours > 0 ? asked - hours * 3600 : undefined;
    const isLatest = this._answers.ask();
    const answers = await Promise.all([this._reader.pyramid(sinceS), this._reader.delivered(sinceS)]);
    if (!isLatest()) {
      return;
    }
    [this._seen, this._delivered] = answers;
    this._askedS = asked;
    const pools = this._seen.pools.map(pool => pool.pool);
    if (this._pool.childElementCount !== pools.length) {
      this._pool.replaceChildren(...pools.map(name => element('option', { value: name }, name)));
    }
    this._pool.hidden = pools.length < 2;
    this._draw();
  }

  private _draw(): void {
    const pool = this._seen.pools.find(one => one.pool === this._pool.value) ?? this._seen.pools[0];
    if (!pool) {
      write(this._span, trans.__('There is no node yet.'));
      return;
    }
    for (const [name, button] of this._buttons) {
      this._update(button, name, pool);
    }
    const allocations = this._delivered.pools.find(one => one.pool === pool.pool)?.allocations ?? [];
    const lines = this._chosen === null ? [] : [meaning(this._chosen), ...causes(this._chosen, pool, allocations)];
    write(this._causes, lines.join('\n'));
    write(this._span, trans.__('%1 to %2, in whole hours', clock(pool.start_s, pool.end_s), clock(pool.end_s, this._now())));
  }

  private _update(button: HTMLButtonElement, name: LevelName, pool: IPyramidOfPool): void {
    const level = pool[name];
    const [bar, , figure] = button.children as unknown as HTMLElement[];
    bar.style.setProperty('--kept', `${100 * (level.ratio ?? 0)}%`);
    attribute(bar, 'data-known', String(level.ratio !== null));
    write(figure, ratio(level));
    attribute(button, 'aria-expanded', String(this._chosen === name));
  }

  private readonly _period = element('select', { 'aria-label': trans.__('Period') });
  private readonly _pool = element('select', { 'aria-label': trans.__('Pool') });
  private readonly _levels = element('div', { class: 'jp-gpufair-levels', role: 'group', 'aria-label': trans.__('Levels') });
  private readonly _causes = element('div', { class: 'jp-gpufair-why', role: 'status' });
  private readonly _span = element('p', { class: 'jp-gpufair-small' });
  private readonly _buttons = new Map<LevelName, HTMLButtonElement>();
  private _seen: IPyramid = { pools: [] };
  private _delivered: IDeliveries = { pools: [] };
  private _chosen: LevelName | null = null;
  private readonly _answers = new Latest();
  private _askedS = -Infinity;
}

function periodName(hours: number): string {
  if (hours === 0) {
    return trans.__('The budgets’ window');
  }
  const days = hours / 24;
  return trans._n('The last day', 'The last %1 days', days);
}
