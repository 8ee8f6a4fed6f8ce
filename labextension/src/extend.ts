/**
 * More protection for a session that runs: a new request, judged by what its budget has had by now.
 */
import { InputDialog, Notification } from '@jupyterlab/apputils';
import type { ServerConnection } from '@jupyterlab/services';
import type { CommandRegistry } from '@lumino/commands';

import { duration } from './lab/words';
import type { Sessions } from './model';
import { extend } from './request';
import { trans } from './trans';
import type { ISession } from './wire';

export const EXTEND = 'gpufair:extend';
const SPANS_S = [900, 3600, 2 * 3600, 4 * 3600, 8 * 3600];

/** Whether there is a protection to be had: it holds GPUs. */
export function extendable(session: ISession): boolean {
  return session.state === 'running' && session.gpus > 0 && !session.on_cpu;
}

export function addExtend(
  commands: CommandRegistry,
  sessions: Sessions,
  settings: ServerConnection.ISettings
): void {
  commands.addCommand(EXTEND, {
    label: trans.__('Extend Protection…'),
    caption: trans.__('Ask that nobody may take the GPUs for some time from now on'),
    describedBy: { args: { type: 'object', properties: {} } },
    isEnabled: () => sessions.current !== null && extendable(sessions.current),
    isVisible: () => sessions.current !== null,
    execute: async () => {
      const session = sessions.current;
      if (!session) {
        return;
      }
      const answer = await InputDialog.getItem({
        title: trans.__('Protected from now on for'),
        items: SPANS_S.map(duration),
        okLabel: trans.__('Extend'),
        editable: false
      });
      const span = SPANS_S.find(one => duration(one) === answer.value);
      if (!answer.button.accept || span === undefined) {
        return;
      }
      try {
        await extend(settings, session.kernel_id, span);
        Notification.success(trans.__('Nobody may take the GPUs for %1.', duration(span)), { autoClose: 5_000 });
      } catch (error) {
        Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
      }
    }
  });
}
