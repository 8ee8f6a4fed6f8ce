/**
 * Notifications: the kernel died and can be restored; the session was preempted; it is back.
 */
import { Notification } from '@jupyterlab/apputils';
import type { ServerConnection } from '@jupyterlab/services';

import { perform } from './actions';
import type { IChange, Sessions } from './model';
import { serverNow } from './request';
import { clock, lostText } from './text';
import type { ISession } from './wire';

/** One notification for each session and subject: a newer one takes the place of the older. */
class Notices {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  offerRestore(session: ISession): void {
    const saved = session.checkpoint ? clock(session.checkpoint.at_s, serverNow()) : 'the last checkpoint';
    this._show(session, 'restore', `The kernel died. Restore the state saved at ${saved}?`, 'warning', [
      {
        label: 'Restore',
        caption: 'Bring the saved variables back into the new kernel',
        displayType: 'accent',
        callback: () => void perform(this._settings, session, 'restore')
      }
    ]);
  }

  withdrawRestore(session: ISession): void {
    const id = this._shown.get(`${session.kernel_id} restore`);
    if (id !== undefined) {
      Notification.dismiss(id);
    }
  }

  preempted(session: ISession): void {
    this._show(session, 'move', session.reason || 'The session gave its GPUs back.', 'warning');
  }

  restored(session: ISession): void {
    const where = session.node ? ` on ${session.node}` : '';
    const message = `The session is back${where}, with its variables. ${lostText(session)}`.trim();
    this._show(session, 'move', message, session.lost.length ? 'warning' : 'success');
  }

  stayed(session: ISession): void {
    this._show(session, 'move', `The session stays on its GPUs: ${session.not_moved}`, 'warning');
  }

  private _show(
    session: ISession,
    subject: 'restore' | 'move',
    message: string,
    type: 'warning' | 'success',
    actions: Notification.IAction[] = []
  ): void {
    const key = `${session.kernel_id} ${subject}`;
    const known = this._shown.get(key);
    // An offer stays until it is answered or void; news go by themselves, and stay in the notification centre.
    const autoClose: number | false = subject === 'restore' ? false : 10_000;
    if (known === undefined || !Notification.update({ id: known, message, type, actions, autoClose })) {
      this._shown.set(key, Notification.emit(message, type, { actions, autoClose }));
    }
  }

  private readonly _shown = new Map<string, string>();
}

const HOLDING = new Set(['running', 'checkpointing', 'stopping']);
const WAITING = new Set(['queued', 'parked']);

/** Says what happened to the sessions of this page's notebooks. */
export function addNotices(sessions: Sessions, settings: ServerConnection.ISettings): void {
  const notices = new Notices(settings);
  sessions.changed.connect((_, { before, after }: IChange) => {
    // Every browser of this server hears of every session.
    if (!sessions.panelOf(after)) {
      return;
    }
    if (after.restore_offered && !before?.restore_offered) {
      notices.offerRestore(after);
    } else if (!after.restore_offered && before?.restore_offered) {
      notices.withdrawRestore(after);
    }
    if (before === null) {
      return;
    }
    if (after.not_moved && !before.not_moved) {
      notices.stayed(after);
    }
    if (HOLDING.has(before.state) && WAITING.has(after.state)) {
      notices.preempted(after);
    } else if (before.state === 'restoring' && after.state === 'running') {
      notices.restored(after);
    }
  });
}
