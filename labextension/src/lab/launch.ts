/**
 * "GPU Notebook…": a dialog that says what each wish would mean, and the notebook that asks for it.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, type ICommandPalette, Notification, showDialog } from '@jupyterlab/apputils';
import type { ILauncher } from '@jupyterlab/launcher';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { LabIcon } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';

import { trans } from '../trans.js';
import type { LabReader } from './reader.js';
import type { IWish } from './wire.js';
import { type IChosen, WishForm } from './wish.js';

const NEW = 'gpufair:new-notebook';
const CHANGE = 'gpufair:change-request';
/** In a notebook's metadata; the server reads it when the kernel is started. */
const REQUEST = 'gpufair_request';

export function addLaunch(
  app: JupyterFrontEnd,
  reader: LabReader,
  icon: LabIcon,
  where: {
    launcher: ILauncher | null;
    palette: ICommandPalette | null;
    tracker: INotebookTracker | null;
    /** JupyterLab's own word: the launcher knows its sections by it. */
    category: string;
  }
): void {
  const { launcher, palette, tracker, category } = where;
  app.commands.addCommand(NEW, {
    label: args => (args.isLauncher ? trans.__('GPU Notebook') : trans.__('New GPU Notebook…')),
    caption: trans.__('Choose GPUs, budget and protection, and see when it would start'),
    icon: args => (args.isPalette ? undefined : icon),
    describedBy: { args: { type: 'object', properties: { cwd: { type: 'string' } } } },
    execute: async args => {
      const chosen = await ask(reader, trans.__('New GPU notebook'), trans.__('Create'));
      if (chosen) {
        await create(app, String(args.cwd ?? ''), chosen);
      }
    }
  });
  launcher?.add({ command: NEW, category, rank: 100, args: { isLauncher: true } });
  palette?.addItem({ command: NEW, category: trans.__('GPU Fair Share'), args: { isPalette: true } });
  if (!tracker) {
    return;
  }
  app.commands.addCommand(CHANGE, {
    label: trans.__('Change GPU Request…'),
    caption: trans.__('What this notebook asks for when its kernel is started the next time'),
    describedBy: { args: { type: 'object', properties: {} } },
    isEnabled: () => tracker.currentWidget !== null,
    execute: async () => {
      const panel = tracker.currentWidget;
      const model = panel?.content.model;
      if (!panel || !model) {
        return;
      }
      const wish = (model.getMetadata(REQUEST) ?? {}) as IWish;
      const kernel = panel.sessionContext.session?.kernel?.name ?? '';
      const title = trans.__('GPU request of this notebook');
      const chosen = await ask(reader, title, trans.__('Save'), { profile: profileOf(kernel), wish });
      if (chosen) {
        model.setMetadata(REQUEST, chosen.wish);
        await panel.context.save();
        if (kernelOf(chosen) !== kernel) {
          await panel.sessionContext.changeKernel({ name: kernelOf(chosen) });
        } else {
          Notification.info(
            trans.__('It counts when the kernel is started the next time: shut it down and start it to ask anew.')
          );
        }
      }
    }
  });
  palette?.addItem({ command: CHANGE, category: trans.__('GPU Fair Share') });
}

async function ask(
  reader: LabReader,
  title: string,
  label: string,
  start?: { profile?: string; wish: IWish }
): Promise<IChosen | null> {
  let form: WishForm;
  try {
    const [profiles, allocations] = await Promise.all([reader.profiles(), reader.allocations()]);
    if (!profiles.length) {
      throw new Error(trans.__('The scheduler has no profiles: ask its operator for one.'));
    }
    const known = profiles.some(one => one.name === start?.profile);
    form = new WishForm(reader, profiles, allocations, known ? start : { wish: start?.wish ?? {} });
  } catch (error) {
    Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
    return null;
  }
  const body = new Widget({ node: form.node });
  const answer = await showDialog({ title, body, buttons: [Dialog.cancelButton(), Dialog.okButton({ label })] });
  return answer.button.accept ? form.chosen : null;
}

async function create(app: JupyterFrontEnd, cwd: string, chosen: IChosen): Promise<void> {
  const contents = app.serviceManager.contents;
  const name = kernelOf(chosen);
  const made = await contents.newUntitled({ type: 'notebook', path: cwd });
  await contents.save(made.path, {
    type: 'notebook',
    format: 'json',
    content: {
      cells: [],
      metadata: {
        kernelspec: { name, display_name: chosen.profile.display_name || name, language: 'python' },
        ...(Object.keys(chosen.wish).length ? { [REQUEST]: chosen.wish } : {})
      },
      nbformat: 4,
      nbformat_minor: 5
    }
  });
  await app.commands.execute('docmanager:open', { path: made.path, factory: 'Notebook', kernel: { name } });
}

/** The kernelspec of a profile, as the server names it. */
function kernelOf(chosen: IChosen): string {
  return `gpufair-${chosen.profile.name.toLowerCase()}`;
}

function profileOf(kernel: string): string | undefined {
  return kernel.startsWith('gpufair-') ? kernel.slice('gpufair-'.length) : undefined;
}
