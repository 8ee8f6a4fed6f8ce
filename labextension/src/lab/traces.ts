/**
 * What a session or run has left: its checkpoints, and the end of what it wrote. Each is asked for only while it is open.
 */
import { clock, size } from '../text.js';
import { trans } from '../trans.js';
import { Rows, element, press, write } from './dom.js';
import type { ILog, ITrace } from './wire.js';

/** What of it is read, and done. */
export interface ITraces {
  checkpoints(id: string): Promise<ITrace[]>;
  log(id: string, after: number): Promise<ILog>;
}

/** 64 Ki characters: more than anybody reads here; `gpufair logs` has all. */
const MOST = 64 * 1024;
/** 2 s, and four times as long as the answer took: a large record is read less often. */
const PAUSE_MS = 2_000;

/** A part of a card that is folded open by its reader. */
abstract class Fold {
  readonly node: HTMLDetailsElement;

  constructor(label: string, name: string) {
    const summary = element('summary', { 'aria-label': `${label}: ${name}` }, label);
    this.node = element('details', { class: 'jp-gpufair-fold' }, summary, this._problem);
    this.node.addEventListener('toggle', () => this.look());
  }

  /** Read it again, if it is open and not just read. */
  look(): void {
    if (!this.node.open || this._reading || Date.now() < this._due) {
      return;
    }
    this._reading = true;
    const begun = Date.now();
    void this.read()
      .then(
        () => write(this._problem, ''),
        error => write(this._problem, error instanceof Error ? error.message : String(error))
      )
      .finally(() => {
        this._reading = false;
        this._due = Date.now() + Math.max(PAUSE_MS, 4 * (Date.now() - begun));
      });
  }

  protected abstract read(): Promise<void>;

  private readonly _problem = element('p', { class: 'jp-gpufair-small', role: 'alert' });
  private _reading = false;
  private _due = 0;
}

/** Newest first; each can be gone back to while the session runs. */
export class CheckpointFold extends Fold {
  constructor(
    name: string,
    private readonly _load: () => Promise<ITrace[]>,
    private readonly _back: (checkpoint: ITrace) => void,
    private readonly _now: () => number
  ) {
    super(trans.__('Checkpoints'), name);
    const list = element('ul', { class: 'jp-gpufair-list' });
    this.node.append(this._none, list);
    this._rows = new Rows<ITrace>(
      list,
      one => one.id,
      one =>
        element(
          'li',
          { class: 'jp-gpufair-checkpoint' },
          element('span', { class: 'jp-gpufair-small' }),
          press(trans.__('Restore'), () => this._back(one))
        ),
      (row, one) => this._update(row, one)
    );
  }

  /** Whether there is a running kernel that can take one. */
  set restorable(is: boolean) {
    if (this._restorable !== is) {
      this._restorable = is;
      this._rows.show(this._known);
    }
  }

  protected async read(): Promise<void> {
    this._known = await this._load();
    this._rows.show(this._known);
    write(this._none, this._known.length ? '' : trans.__('There are none yet.'));
  }

  private _update(row: HTMLElement, one: ITrace): void {
    const [told, button] = row.children as unknown as [HTMLElement, HTMLButtonElement];
    const at = clock(one.at_s, this._now());
    const lost = one.lost.length ? trans.__('without %1', one.lost.map(each => each.name).join(', ')) : '';
    write(told, [at, size(one.size_bytes), lost].filter(Boolean).join(' · '));
    told.title = one.lost.map(each => `${each.name}: ${each.reason}`).join('\n');
    button.hidden = !this._restorable;
    button.setAttribute('aria-label', trans.__('Restore the checkpoint of %1', at));
  }

  private readonly _none = element('p', { class: 'jp-gpufair-small' });
  private readonly _rows: Rows<ITrace>;
  private _known: ITrace[] = [];
  private _restorable = false;
}

/** The end of what it wrote, followed while it is open. */
export class LogFold extends Fold {
  constructor(
    name: string,
    private readonly _load: (after: number) => Promise<ILog>
  ) {
    super(trans.__('Log'), name);
    this._text = element('pre', { class: 'jp-gpufair-log', tabindex: '0', 'aria-label': trans.__('Log of %1', name) });
    this.node.append(this._text);
  }

  protected async read(): Promise<void> {
    if (this._ended) {
      return;
    }
    const page = await this._load(this._after);
    const shown = this._written ? (this._text.textContent ?? '') : '';
    const whole = (page.start === this._after ? shown + page.text : page.text).slice(-MOST);
    const atEnd = this._text.scrollTop + this._text.clientHeight >= this._text.scrollHeight - 4;
    write(this._text, whole || trans.__('Nothing was written yet.'));
    this._written = whole !== '';
    this._after = page.after;
    this._ended = page.ended;
    if (atEnd) {
      this._text.scrollTop = this._text.scrollHeight;
    }
  }

  private readonly _text: HTMLPreElement;
  private _after = -1;
  private _written = false;
  private _ended = false;
}
