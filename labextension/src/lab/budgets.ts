/**
 * The budget tree: what each allocation is entitled to, holds and waits for, and what it has used of what it is due.
 */
import { CourseView } from './course.js';
import { Rows, element, style, write } from './dom.js';
import { type Teams, teamOf } from './teams.js';
import type { IAllocation, IBudgets, IOverTime } from './wire.js';
import { depth, entitledGpus, inPools, spent, standing, trans } from './words.js';

export class BudgetsView {
  readonly node = element('div', { class: 'jp-gpufair-budgets' });

  constructor(
    private readonly _teams: Teams,
    private readonly _overTime: (path: string) => Promise<IOverTime>
  ) {
    const list = element('div', { role: 'list', 'aria-label': trans.__('Budgets') });
    this.node.append(list);
    this._rows = new Rows<IAllocation>(list, one => one.path, one => this._make(one), (made, one) => this._update(made, one));
  }

  show(budgets: IBudgets): void {
    // One scale for all bars: GPUs next to GPUs.
    this._budgets = budgets;
    const most = (one: IAllocation) => Math.max(entitledGpus(one, budgets), one.gpus_held);
    this._most = budgets.allocations.map(most).reduce((a, b) => Math.max(a, b), 1);
    this._rows.show(budgets.allocations);
  }

  private _make(one: IAllocation): HTMLElement {
    const [made, course] = [row(), new CourseView(one.path, this._overTime)];
    made.append(course.node);
    this._courses.set(made, course);
    return made;
  }

  private _update(made: HTMLElement, one: IAllocation): void {
    const [name, now, bar, used] = made.children as unknown as HTMLElement[];
    // All below a row inherits its variables, and is styled again when they are written, even where they are the same.
    style(made, `--level: ${depth(one.path)}; --team: ${this._teams.colour(teamOf(one.path))}`);
    write(name, one.path.split('/').pop() ?? one.path);
    name.title = one.path;
    const entitled = entitledGpus(one, this._budgets);
    write(now, standing(one, entitled));
    const part = (count: number) => `${(100 * Math.min(count, this._most)) / this._most}%`;
    const [held, wanted] = [part(one.gpus_held), part(one.gpus_held + one.gpus_queued)];
    style(bar, `--held: ${held}; --queued: ${wanted}; --entitled: ${part(entitled)}`);
    write(used, [spent(one), inPools(one)].filter(Boolean).join(' · '));
    this._courses.get(made)?.show(one);
  }

  private readonly _rows: Rows<IAllocation>;
  private readonly _courses = new WeakMap<HTMLElement, CourseView>();
  private _budgets: IBudgets = { window_s: 0, banking: 0, capacity_gpu_s: 0, allocations: [] };
  private _most = 1;
}

function row(): HTMLElement {
  const bar = element('span', { class: 'jp-gpufair-bar', 'aria-hidden': 'true' });
  return element(
    'div',
    { class: 'jp-gpufair-budget', role: 'listitem' },
    element('span', { class: 'jp-gpufair-budget-name' }),
    element('span', { class: 'jp-gpufair-figure' }),
    bar,
    element('span', { class: 'jp-gpufair-small' })
  );
}
