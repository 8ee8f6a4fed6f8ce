/**
 * Puts outputs that were made while nobody looked under their cells, and [*] beside cells that wait or run for others.
 *
 * The supervisor beside the kernel records all output. A notebook that is opened while its session lives, or after its
 * cells ran on without a browser, is completed from that record. So is a cell of this page whose answers were lost
 * while its connection was down.
 */
import type { Cell, CodeCell, ICodeCellModel } from '@jupyterlab/cells';
import { type INotebookTracker, type Notebook, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage, ServerConnection } from '@jupyterlab/services';

import { Latest } from './latest';
import { kernelIdOf, type Sessions } from './model';
import { latestByCell, missing, withNote } from './recorded';
import { getCells, getOutputs } from './request';
import { trans } from './trans';
import type { ICell, IExecution } from './wire';

/** 250 ms: a cell that prints a progress bar sends many messages, and one reading of the record covers them. */
const GATHER_MS = 250;
/** 2 s: the record may lag behind the message that announced it, and no further message need come. */
const AGAIN_MS = 2_000;
/** 30 s: a cell that has been silent for long is looked at less often. */
const AGAIN_MOST_MS = 30_000;
/** Metadata of a cell whose output the user cleared: of which execution. It stays cleared when the notebook is opened again. */
const CLEARED = 'gpufair_cleared';

/** The error under a cell that a preemption has cut. */
const CUT = 'SessionPreempted';

class NotebookOutputs {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _settings: ServerConnection.ISettings,
    private readonly _isOurs: (kernelId: string) => boolean
  ) {
    const context = _panel.sessionContext;
    context.iopubMessage.connect((_, message) => this._hear(message));
    context.connectionStatusChanged.connect((_, status) => this._connection(status));
    context.kernelChanged.connect(() => this.soon(0));
    NotebookActions.outputCleared.connect(this._cleared, this);
    NotebookActions.executionScheduled.connect(this._scheduled, this);
    _panel.disposed.connect(() => {
      clearTimeout(this._timer);
      NotebookActions.outputCleared.disconnect(this._cleared, this);
      NotebookActions.executionScheduled.disconnect(this._scheduled, this);
    });
  }

  /** Read the record after a while, or sooner if that was asked for already. */
  soon(afterMs: number): void {
    const at = Date.now() + afterMs;
    if (this._timer !== 0 && this._due <= at) {
      return;
    }
    clearTimeout(this._timer);
    this._due = at;
    this._timer = window.setTimeout(() => {
      this._timer = 0;
      void this._complete();
    }, afterMs);
  }

  private async _complete(): Promise<void> {
    if (this._reading) {
      this.soon(this._gatherMs);
      return;
    }
    this._reading = true;
    const begun = Date.now();
    try {
      await this._bring();
    } finally {
      this._reading = false;
      // A record that takes long to read is read less often.
      this._gatherMs = Math.max(GATHER_MS, 4 * (Date.now() - begun));
    }
  }

  /** Cells that wait have become more or fewer. */
  async heldChanged(): Promise<void> {
    const kernelId = kernelIdOf(this._panel);
    const isLatest = this._marks.ask();
    const waiting = kernelId === null ? [] : await this._read(kernelId, getCells, answer => answer.cells);
    if (this._panel.isDisposed || kernelIdOf(this._panel) !== kernelId) {
      return;
    }
    if (waiting === null) {
      this.soon(AGAIN_MS);
    } else if (isLatest() && this._mark(waiting)) {
      this.soon(0);
    }
  }

  private _connection(status: Kernel.ConnectionStatus): void {
    if (status === 'connected') {
      this.soon(0);
      return;
    }
    for (const cell of this._panel.content.widgets) {
      const own = ownRequest(cell);
      if (own?.live) {
        this._cutOff.add(own.id);
        this._settled.delete(own.id);
      }
    }
  }

  private _hear(message: KernelMessage.IMessage): void {
    // A message that no request caused has an empty parent.
    const parent = message.parent_header as Partial<KernelMessage.IHeader>;
    if (parent.msg_id === undefined) {
      return;
    }
    if (message.header.msg_type === 'update_display_data' && this._shown.size > 0) {
      // JupyterLab knows only displays that it has drawn from messages.
      this._redraw = true;
      this.soon(this._gatherMs);
    }
    if (message.header.msg_type === 'error' && (message as KernelMessage.IErrorMsg).content.ename === CUT) {
      this.soon(this._gatherMs);
    }
    if (this._awaited.has(parent.msg_id) || (this._cutOff.has(parent.msg_id) && isIdle(message))) {
      this._pauseMs = AGAIN_MS;
      this.soon(this._gatherMs);
    } else if (parent.session === this._panel.sessionContext.session?.kernel?.clientId) {
      if (isIdle(message) && !this._cutOff.has(parent.msg_id)) {
        this._settled.add(parent.msg_id);
      }
    } else if (message.header.msg_type === 'execute_input' && !this._panel.context.model.collaborative) {
      // Another page runs a cell. Where pages share a document, that page draws for all.
      this.soon(this._gatherMs);
    }
  }

  private async _read<A, T>(
    kernelId: string,
    get: (settings: ServerConnection.ISettings, kernelId: string) => Promise<A | null>,
    part: (answer: A) => T[]
  ): Promise<T[] | null> {
    try {
      const answer = await get(this._settings, kernelId);
      return answer === null ? [] : part(answer);
    } catch (error) {
      console.warn('gpufair: what the server knows of cells could not be read', error);
      return null;
    }
  }

  private async _bring(): Promise<void> {
    await this._panel.context.ready;
    const kernelId = kernelIdOf(this._panel);
    if (this._panel.isDisposed || !kernelId || !this._isOurs(kernelId)) {
      return;
    }
    const isLatest = this._marks.ask();
    const [executions, waiting] = await Promise.all([
      this._read(kernelId, getOutputs, answer => answer.executions),
      this._read(kernelId, getCells, answer => answer.cells)
    ]);
    if (this._panel.isDisposed || kernelIdOf(this._panel) !== kernelId) {
      return;
    }
    if (executions !== null) {
      const redraw = this._redraw;
      this._redraw = false;
      const latest = latestByCell(executions);
      this._awaited.clear();
      for (const cell of this._panel.content.widgets) {
        const execution = latest.get(cell.model.id);
        if (execution && cell.model.type === 'code') {
          this._put(cell as CodeCell, execution, redraw);
        }
      }
    }
    if (waiting !== null && isLatest()) {
      this._mark(waiting);
    }
    // An answer that did not come says nothing: ask again.
    if (this._awaited.size > 0 || executions === null || waiting === null) {
      this.soon(this._pauseMs);
      this._pauseMs = Math.min(2 * this._pauseMs, AGAIN_MOST_MS);
    }
  }

  private _put(cell: CodeCell, execution: IExecution, redraw: boolean): void {
    const own = ownRequest(cell);
    const running = execution.state === 'running';
    if (own?.live) {
      if (!this._cutOff.has(own.id)) {
        // This page runs the cell, and JupyterLab itself draws its output.
        this._settled.add(own.id);
        return;
      }
      if (own.id !== execution.msg_id) {
        return; // it waits, and its answer will come
      }
      if (running) {
        this._awaited.add(own.id);
        return;
      }
      // Its end, and whatever came while the connection was down, will never reach this page.
      cell.outputArea.future.dispose();
      cell.model.executionState = 'idle';
    } else if (cell.model.getMetadata(CLEARED) === execution.msg_id) {
      return;
    } else if (this._settled.has(execution.msg_id)) {
      // What was complete in this page once is the user's from then on, but for displays that a later cell updates.
      if (!redraw || this._shown.get(cell.model.id) !== execution.msg_id) {
        return;
      }
    }
    this._cutOff.delete(execution.msg_id);
    show(cell.model, execution);
    this._shown.set(cell.model.id, execution.msg_id);
    if (running) {
      this._awaited.add(execution.msg_id);
      this._star(cell.model);
    } else {
      this._settled.add(execution.msg_id);
    }
  }

  /** Show [*] beside what waits or runs for other pages; whether some do so no longer. */
  private _mark(waiting: ICell[]): boolean {
    const ids = new Set(waiting.map(cell => cell.cell_id));
    let fewer = false;
    for (const cell of this._panel.content.widgets) {
      if (cell.model.type !== 'code') {
        continue;
      }
      const model = cell.model as ICodeCellModel;
      note(cell, waiting.some(one => one.cell_id === model.id && one.state === 'held') ? 'held' : wasCut(model) ? 'cut' : null);
      const execution = this._shown.get(model.id);
      const runs = execution !== undefined && this._awaited.has(execution);
      if (ownRequest(cell)?.live) {
        this._starred.delete(model.id);
      } else if (ids.has(model.id) || runs) {
        this._star(model);
      } else if (this._starred.delete(model.id)) {
        model.executionState = 'idle';
        fewer = true;
      }
    }
    return fewer;
  }

  private _star(model: ICodeCellModel): void {
    this._starred.add(model.id);
    model.executionState = 'running';
  }

  private _cleared(_: unknown, { notebook, cell }: { notebook: Notebook; cell: Cell }): void {
    const execution = this._shown.get(cell.model.id) ?? ownRequest(cell)?.id;
    const kernelId = kernelIdOf(this._panel);
    if (notebook === this._panel.content && execution !== undefined && kernelId && this._isOurs(kernelId)) {
      cell.model.setMetadata(CLEARED, execution);
    }
  }

  private _scheduled(_: unknown, { notebook, cell }: { notebook: Notebook; cell: Cell }): void {
    if (notebook === this._panel.content) {
      note(cell, null);
      this._starred.delete(cell.model.id);
      this._shown.delete(cell.model.id);
      cell.model.deleteMetadata(CLEARED);
    }
  }

  /** Executions of other pages that still go on. */
  private readonly _awaited = new Set<string>();
  /** Executions that this page has shown to their end, or runs itself: cells cleared since stay so. */
  private readonly _settled = new Set<string>();
  /** Requests of this page whose answers may be lost: its connection was down while they were open. */
  private readonly _cutOff = new Set<string>();
  /** Which execution of the record a cell shows. */
  private readonly _shown = new Map<string, string>();
  /** Cells beside which we have put [*]. */
  private readonly _starred = new Set<string>();
  /** A display was updated, maybe one of a cell that was complete. */
  private _redraw = false;
  private _reading = false;
  private readonly _marks = new Latest();
  private _gatherMs = GATHER_MS;
  private _pauseMs = AGAIN_MS;
  private _timer = 0;
  /** When it fires, by this browser's clock. */
  private _due = 0;
}

/** The last request of this page for a cell, and whether JupyterLab still waits for its answer. */
function ownRequest(cell: Cell): { id: string; live: boolean } | null {
  // Null before the first request, whatever its type says.
  const future = (cell as CodeCell).outputArea?.future as CodeCell['outputArea']['future'] | null | undefined;
  return future ? { id: future.msg.header.msg_id, live: !future.isDisposed } : null;
}

/** Whether a cell's last run was cut by a preemption: its output says so, in a document that was saved since as well. */
function wasCut(model: ICodeCellModel): boolean {
  const last = model.outputs.length ? model.outputs.get(model.outputs.length - 1).toJSON() : null;
  return last?.output_type === 'error' && last.ename === CUT;
}

/** Say beside a cell what is the matter with it: `[*]` alone is also what a cell shows that runs. */
function note(cell: Cell, what: 'held' | 'cut' | null): void {
  if (what === null) {
    delete cell.node.dataset.gpufair;
    delete cell.node.dataset.gpufairNote;
    return;
  }
  cell.node.dataset.gpufair = what;
  cell.node.dataset.gpufairNote = what === 'held' ? trans.__('waits for the session') : trans.__('cut by a preemption');
}

function isIdle(message: KernelMessage.IMessage): boolean {
  return (
    message.header.msg_type === 'status' &&
    (message as KernelMessage.IStatusMsg).content.execution_state === 'idle'
  );
}

function show(model: ICodeCellModel, execution: IExecution): void {
  const shown = model.outputs.toJSON();
  const wanted = withNote(shown, execution);
  const rest = missing(shown, wanted);
  if (rest === null) {
    model.outputs.fromJSON(wanted);
  } else {
    for (const output of rest) {
      model.outputs.add(output);
    }
  }
  if (model.executionCount !== execution.execution_count && execution.execution_count !== null) {
    model.executionCount = execution.execution_count;
  }
}

export function addOutputs(
  tracker: INotebookTracker,
  sessions: Sessions,
  settings: ServerConnection.ISettings
): void {
  const known = new Set<string>();
  const notebooks = new Map<NotebookPanel, NotebookOutputs>();
  const attach = (panel: NotebookPanel) => {
    const outputs = new NotebookOutputs(panel, settings, kernelId => known.has(kernelId));
    notebooks.set(panel, outputs);
    panel.disposed.connect(() => notebooks.delete(panel));
  };
  tracker.widgetAdded.connect((_, panel) => attach(panel));
  sessions.changed.connect((_, { before, after }) => {
    known.add(after.kernel_id);
    const panel = sessions.panelOf(after);
    const outputs = panel && notebooks.get(panel);
    // Known from now on, or moved: what ran meanwhile is read at once.
    if (before?.state !== after.state) {
      outputs?.soon(0);
    } else if (before.held_cells !== after.held_cells) {
      void outputs?.heldChanged();
    }
  });
}
