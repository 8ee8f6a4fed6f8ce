/**
 * Puts outputs that were made while nobody looked under their cells.
 *
 * The supervisor beside the kernel records all output. A notebook that is opened while its session lives, or after its
 * cells ran on without a browser, is completed from that record.
 */
import type { CodeCell, ICodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage, ServerConnection } from '@jupyterlab/services';

import { kernelIdOf, type Sessions } from './model';
import { latestByCell, missing, withNote } from './recorded';
import { getOutputs } from './request';
import type { IExecution } from './wire';

/** 250 ms: a cell that prints a progress bar sends many messages, and one reading of the record covers them. */
const GATHER_MS = 250;
/** 2 s: the record may lag behind the message that announced it, and no further message need come. */
const AGAIN_MS = 2_000;

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
    _panel.disposed.connect(() => clearTimeout(this._timer));
  }

  /** Read the record, once, after a while. */
  soon(afterMs: number): void {
    clearTimeout(this._timer);
    this._timer = window.setTimeout(() => void this._complete(), afterMs);
  }

  private _connection(status: Kernel.ConnectionStatus): void {
    if (status === 'connected') {
      this.soon(0);
    }
  }

  private _hear(message: KernelMessage.IMessage): void {
    // A message that no request caused has an empty parent.
    const parent = message.parent_header as Partial<KernelMessage.IHeader>;
    if (parent.msg_id === undefined) {
      return;
    }
    if (this._awaited.has(parent.msg_id)) {
      this.soon(GATHER_MS);
    } else if (parent.session === this._panel.sessionContext.session?.kernel?.clientId && isIdle(message)) {
      this._settled.add(parent.msg_id);
    }
  }

  private async _complete(): Promise<void> {
    await this._panel.context.ready;
    const kernelId = kernelIdOf(this._panel);
    if (this._panel.isDisposed || !kernelId || !this._isOurs(kernelId)) {
      return;
    }
    let executions: IExecution[];
    try {
      executions = (await getOutputs(this._settings, kernelId))?.executions ?? [];
    } catch (error) {
      console.warn('gpufair: recorded outputs could not be read', error);
      executions = [];
    }
    if (this._panel.isDisposed || kernelIdOf(this._panel) !== kernelId) {
      return;
    }
    const latest = latestByCell(executions);
    this._awaited.clear();
    for (const cell of this._panel.content.widgets) {
      const execution = latest.get(cell.model.id);
      if (execution && cell.model.type === 'code') {
        this._put(cell as CodeCell, execution);
      }
    }
    if (this._awaited.size > 0) {
      this.soon(AGAIN_MS);
    }
  }

  private _put(cell: CodeCell, execution: IExecution): void {
    const future = cell.outputArea?.future;
    if (future && !future.isDisposed) {
      // This page runs the cell, and JupyterLab itself draws its output.
      this._settled.add(future.msg.header.msg_id);
      return;
    }
    // What was complete in this page once is the user's from then on: cleared output stays cleared.
    if (this._settled.has(execution.msg_id)) {
      return;
    }
    show(cell.model, execution);
    if (execution.state === 'running') {
      this._awaited.add(execution.msg_id);
    } else {
      this._settled.add(execution.msg_id);
    }
  }

  /** Executions of other pages that still go on. */
  private readonly _awaited = new Set<string>();
  /** Executions that this page has shown to their end, or runs itself: cells cleared since stay so. */
  private readonly _settled = new Set<string>();
  private _timer = 0;
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
    // Known from now on, or moved: what ran meanwhile is read at once.
    if (before?.state !== after.state) {
      const panel = sessions.panelOf(after);
      if (panel) {
        notebooks.get(panel)?.soon(0);
      }
    }
  });
}
