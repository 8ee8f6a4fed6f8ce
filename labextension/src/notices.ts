/**
 * Notifications: the kernel died and can be restored; the session does not use its GPUs; it was preempted; it is back.
 */
import { Notification } from '@jupyterlab/apputils';
import type { ServerConnection } from '@jupyterlab/services';

import { perform } from './actions';
import type { IChange, Sessions } from './model';
import { serverNow } from './request';
import { MOVE_TO_CPU, clock, lostText } from './text';
import { trans } from './trans';
import type { ISession } from './wire';

type Subject = 'restore' | 'suggestion' | 'move';

/** One notification for each session and subject: a newer one takes the place of the older. */
class Notices {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  offerRestore(session: ISession): void {
    const question = session.checkpoint
      ? trans.__('The kernel died. Restore the state saved at %1?', clock(session.checkpoint.at_s, serverNow()))
      : trans.__('The kernel died. Restore the last checkpoint?');
    this._show(session, 'restore', question, 'warning', [
      {
        label: trans.__('Restore'),
        caption: trans.__('Bring the saved variables back into the new kernel'),
        displayType: 'accent',
        callback: () => void perform(this._settings, session, 'restore')
      }
    ]);
  }

  /** One click moves it; "Not now" is for as long as it has these GPUs. */
  offerCpu(session: ISession, text: string): void {
    this._show(session, 'suggestion', text, 'info', [
      {
        label: trans.__('Move to CPU'),
        caption: trans.__('Save the session, give its GPUs back, and go on with all variables on a CPU node'),
        displayType: 'accent',
        callback: () => void perform(this._settings, session, 'open')
      },
      {
        label: trans.__('Not now'),
        caption: trans.__('Stay on the GPUs, and do not ask again until the session starts anew'),
        callback: () => void perform(this._settings, session, 'dismiss')
      }
    ]);
  }

  withdraw(session: ISession, subject: Subject): void {
    const id = this._shown.get(`${session.kernel_id} ${subject}`);
    if (id !== undefined) {
      Notification.dismiss(id);
    }
  }

  preempted(session: ISession): void {
    this._show(session, 'move', session.reason || trans.__('The session gave its GPUs back.'), 'warning');
  }

  restored(session: ISession): void {
    const back = session.node
      ? trans.__('The session is back on %1, with its variables.', session.node)
      : trans.__('The session is back, with its variables.');
    const message = `${back} ${lostText(session)}`.trim();
    this._show(session, 'move', message, session.lost.length ? 'warning' : 'success');
  }

  stayed(session: ISession): void {
    this._show(session, 'move', trans.__('The session stays on its GPUs: %1', session.not_moved), 'warning');
  }

  private _show(
    session: ISession,
    subject: Subject,
    message: string,
    type: 'info' | 'warning' | 'success',
    actions: Notification.IAction[] = []
  ): void {
    const key = `${session.kernel_id} ${subject}`;
    const known = this._shown.get(key);
    // An offer stays until it is answered or void; news go by themselves, and stay in the notification centre.
    const autoClose: number | false = subject === 'move' ? 10_000 : false;
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
      notices.withdraw(after, 'restore');
    }
    const [asked, asks] = [before?.suggestion, after.suggestion];
    if (asks?.kind === MOVE_TO_CPU && !asked) {
      notices.offerCpu(after, asks.text);
    } else if (!asks && asked) {
      notices.withdraw(after, 'suggestion');
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
