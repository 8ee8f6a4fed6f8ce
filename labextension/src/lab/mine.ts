/**
 * The reader's own sessions and runs, on all servers, with what can be done with each.
 */
import { allows, clock, detailText, statusText } from '../text.js';
import { trans } from '../trans.js';
import { Rows, element, press, write } from './dom.js';
import type { MyAction } from './reader.js';
import { CheckpointFold, type ITraces, LogFold } from './traces.js';
import type { IExplanation, IMine, ITrace } from './wire.js';

const ACTIONS: MyAction[] = ['checkpoint', 'park', 'resume', 'open', 'stop'];

function labelOf(action: MyAction): string {
  const labels: Record<MyAction, string> = {
    checkpoint: trans.__('Save'),
    park: trans.__('Park'),
    resume: trans.__('Resume'),
    open: trans.__('Open on CPU'),
    restore: trans.__('Restore'),
    stop: trans.__('End')
  };
  return labels[action];
}

export interface IDoing {
  act(session: IMine, action: MyAction): void;
  /** Its notebook, on its kernel: taken up first where another server began it. */
  open(session: IMine): void;
  /** Make the change that a why-card names, once its owner agrees; whether it was made. */
  apply?(id: string, why: IExplanation): Promise<boolean>;
  /** Go back to a checkpoint, of which this is the moment. */
  restore(session: IMine, checkpoint: string, at: string): void;
}

export class MineView {
  readonly node = element('div', { class: 'jp-gpufair-mine' });

  constructor(
    private readonly _doing: IDoing | null,
    private readonly _traces: ITraces,
    private readonly _now: () => number
  ) {
    const list = element('ul', { class: 'jp-gpufair-list', 'aria-label': trans.__('My sessions') });
    this.node.append(this._none, list);
    this._rows = new Rows<IMine>(list, one => one.workload_id, one => this._card(one), (row, one) => this._update(row, one));
  }

  show(sessions: IMine[]): void {
    this._sessions = sessions;
    const here = new Set(sessions.map(one => one.workload_id));
    for (const id of this._folds.keys()) {
      if (!here.has(id)) {
        this._folds.delete(id);
      }
    }
    this.draw();
    this._folds.forEach(folds => folds.checkpoints.look());
  }

  /** Redraw what time changes, and follow the logs that are open. */
  tick(): void {
    this.draw();
    this._folds.forEach(folds => folds.log.look());
  }

  draw(): void {
    this._rows.show(this._sessions);
    const none = trans.__('No session or run of yours. Start a notebook with a GPU kernel, or `gpufair submit`.');
    write(this._none, this._sessions.length ? '' : none);
  }

  private _update(row: HTMLElement, one: IMine): void {
    const [title, state, buttons] = row.children as unknown as HTMLElement[];
    write(title, one.name);
    title.title = one.path ?? one.workload_id;
    const elsewhere = this._doing !== null && one.kind === 'session' && !one.here;
    write(state, [statusText(one, this._now()), elsewhere ? trans.__('not open on this server') : ''].filter(Boolean).join(' · '));
    state.title = detailText(one, this._now());
    row.dataset.state = one.state;
    const doing = this._doing;
    if (doing === null) {
      return;
    }
    const wanted = ACTIONS.filter(action => action === 'stop' || may(one, action));
    const opens = one.path === null ? [] : [elsewhere ? trans.__('Re-attach') : trans.__('Notebook')];
    const shown = [...opens, ...wanted].join(' ');
    const folds = this._folds.get(one.workload_id);
    if (folds) {
      folds.checkpoints.node.hidden = one.kind !== 'session';
      folds.checkpoints.restorable = allows(one, 'restore') && one.state === 'running';
    }
    if (buttons.dataset.shown !== shown) {
      buttons.dataset.shown = shown;
      buttons.replaceChildren(
        ...opens.map(label => press(label, () => doing.open(one))),
        ...wanted.map(action => press(labelOf(action), () => doing.act(one, action)))
      );
      for (const button of buttons.children) {
        button.setAttribute('aria-label', `${button.textContent}: ${one.name}`);
      }
    }
  }

  private _card(one: IMine): HTMLElement {
    const doing = this._doing;
    if (!doing) {
      return card();
    }
    const { workload_id: id, name } = one;
    const log = new LogFold(name, after => this._traces.log(id, after));
    const back = (to: ITrace) => doing.restore(one, to.id, clock(to.at_s, this._now()));
    const checkpoints = new CheckpointFold(name, () => this._traces.checkpoints(id), back, this._now);
    this._folds.set(id, { log, checkpoints });
    return card(checkpoints.node, log.node);
  }

  private readonly _none = element('p', { class: 'jp-gpufair-small' });
  private readonly _folds = new Map<string, { log: LogFold; checkpoints: CheckpointFold }>();
  private readonly _rows: Rows<IMine>;
  private _sessions: IMine[] = [];
}

/** Programs save themselves: what is done with a kernel's variables is for sessions. */
function may(one: IMine, action: Exclude<MyAction, 'stop'>): boolean {
  return (one.kind === 'session' || action === 'park' || action === 'resume') && allows(one, action);
}

function card(...folds: HTMLElement[]): HTMLElement {
  return element(
    'li',
    { class: 'jp-gpufair-card' },
    element('span', { class: 'jp-gpufair-budget-name' }),
    element('span', { class: 'jp-gpufair-small' }),
    element('div', { class: 'jp-gpufair-buttons' }),
    ...folds
  );
}
