/**
 * The reader's own sessions and runs, on all servers, with what can be done with each.
 */
import { allows, detailText, statusText } from '../text.js';
import { trans } from '../trans.js';
import { Rows, element, press, write } from './dom.js';
import type { MyAction } from './reader.js';
import type { IExplanation, IMine } from './wire.js';

const ACTIONS: MyAction[] = ['checkpoint', 'park', 'resume', 'open', 'stop'];

function labelOf(action: MyAction): string {
  const labels: Record<MyAction, string> = {
    checkpoint: trans.__('Save'),
    park: trans.__('Park'),
    resume: trans.__('Resume'),
    open: trans.__('Open on CPU'),
    stop: trans.__('End')
  };
  return labels[action];
}

export interface IDoing {
  act(session: IMine, action: MyAction): void;
  open(session: IMine): void;
  /** Make the change that a why-card names, once its owner agrees; whether it was made. */
  apply?(id: string, why: IExplanation): Promise<boolean>;
}

export class MineView {
  readonly node = element('div', { class: 'jp-gpufair-mine' });

  constructor(
    private readonly _doing: IDoing | null,
    private readonly _now: () => number
  ) {
    const list = element('ul', { class: 'jp-gpufair-list', 'aria-label': trans.__('My sessions') });
    this.node.append(this._none, list);
    this._rows = new Rows<IMine>(list, one => one.workload_id, () => card(), (row, one) => this._update(row, one));
  }

  show(sessions: IMine[]): void {
    this._sessions = sessions;
    this.draw();
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
    write(state, statusText(one, this._now()));
    state.title = detailText(one, this._now());
    row.dataset.state = one.state;
    const doing = this._doing;
    if (doing === null) {
      return;
    }
    const wanted = ACTIONS.filter(action => action === 'stop' || may(one, action));
    const shown = [...(one.path === null ? [] : ['notebook']), ...wanted].join(' ');
    if (buttons.dataset.shown !== shown) {
      buttons.dataset.shown = shown;
      buttons.replaceChildren(
        ...(one.path === null ? [] : [press(trans.__('Notebook'), () => doing.open(one))]),
        ...wanted.map(action => press(labelOf(action), () => doing.act(one, action)))
      );
      for (const button of buttons.children) {
        button.setAttribute('aria-label', `${button.textContent}: ${one.name}`);
      }
    }
  }

  private readonly _none = element('p', { class: 'jp-gpufair-small' });
  private readonly _rows: Rows<IMine>;
  private _sessions: IMine[] = [];
}

/** Programs save themselves: what is done with a kernel's variables is for sessions. */
function may(one: IMine, action: Exclude<MyAction, 'stop'>): boolean {
  return (one.kind === 'session' || action === 'park' || action === 'resume') && allows(one, action);
}

function card(): HTMLElement {
  return element(
    'li',
    { class: 'jp-gpufair-card' },
    element('span', { class: 'jp-gpufair-budget-name' }),
    element('span', { class: 'jp-gpufair-small' }),
    element('div', { class: 'jp-gpufair-buttons' })
  );
}
