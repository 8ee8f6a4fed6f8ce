/**
 * What one can do with a session: commands, and the menu of the status bar item.
 */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { ServerConnection } from '@jupyterlab/services';
import { MenuSvg } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';

import { EXTEND, addExtend, extendable } from './extend';
import type { Sessions } from './model';
import { showWhy } from './lab/apply';
import { LabReader } from './lab/reader';
import { act, request, serverNow } from './request';
import { allows, clock, detailText, movable, onGpus } from './text';
import { trans } from './trans';
import type { Action, ISession } from './wire';

export const ACTIONS: Action[] = ['checkpoint', 'park', 'resume', 'open', 'dismiss', 'restore'];

/** [label, caption] of each action. */
function named(action: Action): [string, string] {
  const names: Record<Action, [string, string]> = {
    checkpoint: [trans.__('Save Session Now'), trans.__('Save the variables of this notebook, and go on')],
    park: [trans.__('Park Session'), trans.__('Save the variables, give the GPUs back, and wait until resumed')],
    resume: [trans.__('Resume Session'), trans.__('Ask for the GPUs again and bring the variables back')],
    open: [
      trans.__('Open on a CPU Node'),
      trans.__('Work on without GPUs, free of charge, until the session has GPUs again')
    ],
    dismiss: [
      trans.__('Stay on the GPUs'),
      trans.__('Ask no more whether to move to a CPU node, until the session starts anew')
    ],
    restore: [trans.__('Restore Last Checkpoint'), trans.__('Bring back the variables of the last checkpoint')]
  };
  return names[action];
}

/** Why it waits, with a button for the change that would start it. */
export const WHY = 'gpufair:why';

/** Always there: who cannot hover reads here what the tooltip says, and what waits has no other item. */
export const DETAILS = 'gpufair:details';

function waits(session: ISession): boolean {
  return session.state === 'queued';
}

export function commandOf(action: Action): string {
  return `gpufair:${action}`;
}

function labelOf(action: Action, session: ISession | null): string {
  if (action === 'park' && session && onGpus(session)) {
    return trans.__('Park and Release GPUs');
  }
  return action === 'open' && session && movable(session) ? trans.__('Move to a CPU Node') : named(action)[0];
}

/** Ask the server for an action; what it refuses is shown in its own words. */
export async function perform(
  settings: ServerConnection.ISettings,
  session: ISession,
  action: Action
): Promise<void> {
  try {
    await act(settings, session.kernel_id, action);
  } catch (error) {
    Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
  }
}

/** A kernel that lives has variables of its own, which a restore replaces. */
async function agreed(session: ISession): Promise<boolean> {
  if (session.restore_offered || !session.checkpoint) {
    return true;
  }
  const answer = await showDialog({
    title: trans.__('Restore the last checkpoint?'),
    body: trans.__(
      'Variables that changed since %1 go back to their saved values.',
      clock(session.checkpoint.at_s, serverNow())
    ),
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Restore') })]
  });
  return answer.button.accept;
}

export async function showDetails(session: ISession): Promise<void> {
  const body = new Widget();
  body.addClass('jp-gpufair-details');
  const more = trans.__('More in a terminal: %1', `gpufair why ${session.workload_id.slice(0, 8)}`);
  body.node.textContent = `${detailText(session, serverNow())}\n\n${more}`;
  await showDialog({ title: trans.__('GPU session'), body, buttons: [Dialog.okButton({ label: trans.__('Close') })] });
}

export function addCommands(
  commands: CommandRegistry,
  sessions: Sessions,
  settings: ServerConnection.ISettings
): void {
  for (const action of ACTIONS) {
    commands.addCommand(commandOf(action), {
      label: () => labelOf(action, sessions.current),
      caption: named(action)[1],
      describedBy: { args: { type: 'object', properties: {} } },
      isEnabled: () => sessions.current !== null && allows(sessions.current, action),
      isVisible: () => sessions.current !== null,
      execute: async () => {
        const session = sessions.current;
        if (session && (action !== 'restore' || (await agreed(session)))) {
          await perform(settings, session, action);
        }
      }
    });
  }
  commands.addCommand(DETAILS, {
    label: trans.__('Show Session Details'),
    caption: trans.__('Why it waits or what it holds, its budget, and what was saved'),
    describedBy: { args: { type: 'object', properties: {} } },
    isEnabled: () => sessions.current !== null,
    isVisible: () => sessions.current !== null,
    execute: async () => {
      if (sessions.current) {
        await showDetails(sessions.current);
      }
    }
  });
  const reader = new LabReader((path, init, query) => request(settings, path, init, query));
  commands.addCommand(WHY, {
    label: trans.__('Why Does It Wait?'),
    caption: trans.__('Who holds the GPUs and until when, and what would start the session now'),
    describedBy: { args: { type: 'object', properties: {} } },
    isEnabled: () => sessions.current !== null && waits(sessions.current),
    isVisible: () => sessions.current !== null,
    execute: async () => {
      if (sessions.current) {
        await showWhy(reader, sessions.current.workload_id);
      }
    }
  });
  addExtend(commands, sessions, settings);
  sessions.currentChanged.connect(() => {
    commands.notifyCommandChanged(DETAILS);
    commands.notifyCommandChanged(WHY);
    commands.notifyCommandChanged(EXTEND);
    for (const action of ACTIONS) {
      commands.notifyCommandChanged(commandOf(action));
    }
  });
}

/** Opens the menu of what can be done now, above its anchor. */
export function menuOpener(commands: CommandRegistry, sessions: Sessions): (anchor: HTMLElement) => void {
  const menu = new MenuSvg({ commands });
  menu.addClass('jp-gpufair-menu');
  menu.title.label = trans.__('GPU session');
  return anchor => {
    const session = sessions.current;
    if (!session) {
      return;
    }
    menu.clearItems();
    for (const action of ACTIONS) {
      if (allows(session, action)) {
        menu.addItem({ command: commandOf(action) });
      }
    }
    if (extendable(session)) {
      menu.addItem({ command: EXTEND });
    }
    if (waits(session)) {
      menu.addItem({ command: WHY });
    }
    menu.addItem({ command: DETAILS });
    menu.aboutToClose.connect(function back() {
      menu.aboutToClose.disconnect(back);
      anchor.setAttribute('aria-expanded', 'false');
      anchor.focus();
    });
    anchor.setAttribute('aria-expanded', 'true');
    const place = anchor.getBoundingClientRect();
    menu.open(place.left, place.top);
    // By keyboard one expects to stand on the first item.
    menu.activeIndex = 0;
  };
}
