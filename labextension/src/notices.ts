/**
 * Notifications: the kernel died and can be restored; the session does not use its GPUs; it has to leave; it left; it is back.
 */
import { Notification } from '@jupyterlab/apputils';
import type { ServerConnection } from '@jupyterlab/services';

import { perform, showDetails } from './actions';
import type { IChange, Sessions } from './model';
import { serverNow } from './request';
import { MOVE_TO_CPU, clock, localised, lostText } from './text';
import { type Kind, type Manners, mannerOf, minutesUntil, newsOf } from './told';
import { trans } from './trans';
import type { ISession } from './wire';

type Subject = 'restore' | 'suggestion' | 'move';
/** 10 s: news go by themselves, and stay in the list of notifications. */
const NEWS_MS = 10_000;
/** 15 s: who has waited no longer still looks. */
const WAITED_MS = 15_000;

/** One notification for each session and subject: a newer one takes the place of the older. */
class Notices {
  constructor(
    private readonly _settings: ServerConnection.ISettings,
    private readonly _manners: () => Manners
  ) {}

  offerRestore(session: ISession): void {
    const question = session.checkpoint
      ? trans.__('The kernel died. Restore the state saved at %1?', clock(session.checkpoint.at_s, serverNow()))
      : trans.__('The kernel died. Restore the last checkpoint?');
    this._show(session, ['restore', 'kernelDied'], question, 'warning', [
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
    this._show(session, ['suggestion', 'unusedGpus'], text, 'info', [
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

  leaves(session: ISession): void {
    const [nowS, byS] = [serverNow(), session.deadline_s ?? 0];
    const left = minutesUntil(byS, nowS);
    const told = trans._n(
      'The session is saved, and gives its GPUs back within a minute (by %2).',
      'The session is saved, and gives its GPUs back within %1 minutes (by %2).',
      left,
      clock(byS, nowS)
    );
    const why = localised(session.reason, nowS);
    this._show(session, ['move', 'preemption'], why ? `${told} ${why}` : told, 'warning');
  }

  started(session: ISession): void {
    const told = session.node ? trans.__('The session has started on %1.', session.node) : trans.__('The session has started.');
    this._show(session, ['move', 'started'], told, 'success');
  }

  preempted(session: ISession): void {
    this._show(session, ['move', 'preemption'], session.reason || trans.__('The session gave its GPUs back.'), 'warning');
  }

  restored(session: ISession): void {
    const back = session.node
      ? trans.__('The session is back on %1, with its variables.', session.node)
      : trans.__('The session is back, with its variables.');
    const message = `${back} ${lostText(session)}`.trim();
    const missing = {
      label: trans.__('What is missing'),
      caption: trans.__('Everything that did not come back, with the reasons; also under Show Session Details'),
      callback: () => void showDetails(session)
    };
    const actions = session.lost.length ? [missing] : [];
    this._show(session, ['move', 'restored'], message, session.lost.length ? 'warning' : 'success', actions);
  }

  stayed(session: ISession): void {
    this._show(session, ['move', 'unusedGpus'], trans.__('The session stays on its GPUs: %1', session.not_moved), 'warning');
  }

  private _show(
    session: ISession,
    [subject, kind]: [Subject, Kind],
    message: string,
    type: 'info' | 'warning' | 'success',
    actions: Notification.IAction[] = []
  ): void {
    const manner = mannerOf(kind, this._manners());
    if (manner === 'never') {
      return;
    }
    const key = `${session.kernel_id} ${subject}`;
    const known = this._shown.get(key);
    // An offer stays until it is answered or void. JupyterLab pops nothing up that closes after 0 ms, but lists it; where
    // its own "Do Not Disturb" is on it does so with all.
    const autoClose: number | false = manner === 'quiet' ? 0 : subject === 'move' ? NEWS_MS : false;
    if (known === undefined || !Notification.update({ id: known, message, type, actions, autoClose })) {
      this._shown.set(key, Notification.emit(message, type, { actions, autoClose }));
    }
  }

  private readonly _shown = new Map<string, string>();
}

/** Says what happened to the sessions of this page's notebooks. */
export function addNotices(sessions: Sessions, settings: ServerConnection.ISettings, manners: () => Manners): void {
  const notices = new Notices(settings, manners);
  /** Since when a session is seen to wait, by this browser's clock. */
  const since = new Map<string, number>();
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
    const waits = after.state === 'queued' || after.state === 'starting';
    const waitedMs = Date.now() - (since.get(after.kernel_id) ?? Date.now());
    if (!waits) {
      since.delete(after.kernel_id);
    } else if (!since.has(after.kernel_id)) {
      since.set(after.kernel_id, Date.now());
    }
    if (before === null) {
      return;
    }
    switch (newsOf(before, after)) {
      case 'stayed':
        return notices.stayed(after);
      case 'leaves':
        return notices.leaves(after);
      case 'left':
        return notices.preempted(after);
      case 'started':
        return waitedMs >= WAITED_MS ? notices.started(after) : undefined;
      case 'restored':
        return notices.restored(after);
    }
  });
}
