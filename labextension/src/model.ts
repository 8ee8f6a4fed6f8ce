/**
 * The sessions behind the notebooks of this page, kept up to date by the server's events.
 */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { ServiceManager } from '@jupyterlab/services';
import { type ISignal, Signal } from '@lumino/signaling';

import { getSession } from './request';
import { type ISession, SESSION_EVENT } from './wire';

/** A session that changed; `before` is null when it was not known yet. */
export interface IChange {
  before: ISession | null;
  after: ISession;
}

/** 15 s: events tell what happens at once; this only mends what was missed while their socket was down. */
const REFRESH_MS = 15_000;

export function kernelIdOf(panel: NotebookPanel | null): string | null {
  return panel?.sessionContext.session?.kernel?.id ?? null;
}

export class Sessions {
  constructor(
    private readonly _services: ServiceManager.IManager,
    private readonly _tracker: INotebookTracker
  ) {
    _services.events.stream.connect((_, event) => {
      if (event.schema_id === SESSION_EVENT) {
        // An emission is read-only JSON; its shape is the schema's promise.
        this._take(event as unknown as ISession);
      }
    });
    _tracker.widgetAdded.connect((_, panel) => {
      panel.sessionContext.kernelChanged.connect(() => this._look(panel));
      panel.sessionContext.connectionStatusChanged.connect((_, status) => {
        if (status === 'connected') {
          this._look(panel);
        }
      });
    });
    _tracker.currentChanged.connect((_, panel) => this._look(panel));
    setInterval(() => {
      if (this.current && !document.hidden) {
        void this.refresh(this.current.kernel_id);
      }
    }, REFRESH_MS);
  }

  /** A session changed. */
  get changed(): ISignal<this, IChange> {
    return this._changed;
  }

  /** The notebook in front has, or may have, another session than before. */
  get currentChanged(): ISignal<this, void> {
    return this._currentChanged;
  }

  /** The session of the notebook in front; null where it has none of ours. */
  get current(): ISession | null {
    const kernelId = kernelIdOf(this._tracker.currentWidget);
    return (kernelId && this._known.get(kernelId)) || null;
  }

  /** The open notebook of a session, if it is in this page. */
  panelOf(session: ISession): NotebookPanel | undefined {
    return this._tracker.find(panel => kernelIdOf(panel) === session.kernel_id);
  }

  /** Ask the server. A server that cannot answer now leaves what is known as it is. */
  async refresh(kernelId: string): Promise<void> {
    const known = this._known.get(kernelId);
    let session: ISession | null;
    try {
      session = await getSession(this._services.serverSettings, kernelId);
    } catch (error) {
      console.warn('gpufair: the session could not be read', error);
      return;
    }
    if (this._known.get(kernelId) !== known) {
      return; // an event has told since it was asked, and may be newer
    }
    if (session) {
      this._take(session);
    } else if (this._known.delete(kernelId)) {
      this._currentChanged.emit();
    }
  }

  private _look(panel: NotebookPanel | null): void {
    this._currentChanged.emit();
    const kernelId = kernelIdOf(panel);
    if (kernelId) {
      void this.refresh(kernelId);
    }
  }

  private _take(session: ISession): void {
    const before = this._known.get(session.kernel_id) ?? null;
    this._known.set(session.kernel_id, session);
    this._changed.emit({ before, after: session });
    if (session.kernel_id === kernelIdOf(this._tracker.currentWidget)) {
      this._currentChanged.emit();
    }
  }

  private readonly _known = new Map<string, ISession>();
  private readonly _changed = new Signal<this, IChange>(this);
  private readonly _currentChanged = new Signal<this, void>(this);
}
