/**
 * The side panel: my sessions, the queue, the budgets and the cluster, each fetched only while it is seen.
 */
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { SidePanel } from '@jupyterlab/ui-components';

import { trans } from '../trans.js';
import type { BoardView } from './board.js';
import { element, write } from './dom.js';
import type { IPart } from './parts.js';

/** One of the parts. */
export class Section extends Widget {
  constructor(
    id: string,
    private readonly _part: IPart
  ) {
    super();
    this.id = `gpufair-${id}`;
    this.title.label = _part.title;
    this.addClass('jp-gpufair-section');
    this.node.append(this._problem, _part.node);
    this._problem.hidden = true;
  }

  /** Ask once; calls meanwhile are one more. What cannot be had now leaves what is shown, and says so. */
  async refresh(): Promise<void> {
    if (this._asking) {
      this._again = true;
      return;
    }
    this._asking = true;
    try {
      await this._part.refresh();
      this._problem.hidden = true;
    } catch (error) {
      write(this._problem, error instanceof Error ? error.message : String(error));
      this._problem.hidden = false;
    } finally {
      this._asking = false;
    }
    if (this._again) {
      this._again = false;
      if (this.isVisible) {
        await this.refresh();
      }
    }
  }

  tick(): void {
    this._part.tick();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    void this.refresh();
  }

  private readonly _problem = element('p', { class: 'jp-gpufair-problem', role: 'alert' });
  private _asking = false;
  private _again = false;
}

/** Events tell of workloads only; nodes, and metrics that time alone changes, are looked at this often. */
const REFRESH_MS = 10_000;

export class LabPanel extends SidePanel {
  constructor(
    private readonly _sections: Section[],
    private readonly _board: BoardView
  ) {
    super();
    this.id = 'gpufair-lab';
    this.title.caption = trans.__('GPU Fair Share');
    this.addClass('jp-gpufair-lab');
    this.header.addWidget(new Widget({ node: _board.node }));
    for (const section of _sections) {
      this.addWidget(section);
    }
    this._timers = [
      window.setInterval(() => this.refresh(), REFRESH_MS),
      window.setInterval(() => this._seen().forEach(section => section.tick()), 1000)
    ];
  }

  /** Look again at what is seen. */
  refresh(): void {
    if (this.isVisible && !document.hidden) {
      void this._board.refresh();
    }
    this._seen().forEach(section => void section.refresh());
  }

  dispose(): void {
    this._timers.forEach(clearInterval);
    super.dispose();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.refresh();
  }

  private _seen(): Section[] {
    return this.isVisible && !document.hidden ? this._sections.filter(section => section.isVisible) : [];
  }

  private readonly _timers: number[];
}
