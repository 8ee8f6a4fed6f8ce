/**
 * The side panel in JupyterLab, and in Notebook's tree and notebook pages.
 */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, Notification, showDialog } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';

import { request, serverNow } from '../request.js';
import { DOMAIN, speak, trans } from '../trans.js';
import { applyChange } from './apply.js';
import { type IRequest, standing } from './debating.js';
import { BoardView } from './board.js';
import { press } from './dom.js';
import { addLaunch } from './launch.js';
import { LabPanel, Section } from './panel.js';
import { makeParts } from './parts.js';
import { LabReader, type MyAction } from './reader.js';
import { TOUR, addTour } from './touring.js';
import { type IExplanation, type IMine, LAB_EVENT } from './wire.js';

const OPEN = 'gpufair:open-lab';
const WHAT_IF = 'gpufair:what-if';
/** A decision takes its time: who waits for one is told within so long. */
const AWAITED_MS = 60_000;
const REQUESTS_MS = 5000;

/** Three boards of chips, filled to different heights. */
const icon = new LabIcon({
  name: 'gpufair:lab',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16"><g class="jp-icon3" fill="#616161">' +
    '<path d="M3 20h18v1.5H3z"/><path d="M4 12h4v7H4zM10 7h4v12h-4zM16 3h4v16h-4z"/></g></svg>'
});

const lab: JupyterFrontEndPlugin<void> = {
  id: '@gpufair/labextension:lab',
  description: "A side panel with the reader's sessions, the queue, the budgets and the cluster.",
  autoStart: true,
  optional: [ITranslator, ICommandPalette, ILayoutRestorer, ILauncher, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    launcher: ILauncher | null,
    tracker: INotebookTracker | null
  ) => {
    speak(translator?.load(DOMAIN));
    const settings = app.serviceManager.serverSettings;
    const reader = new LabReader((path, init, query) => request(settings, path, init, query));
    const doing = {
      open: async (session: IMine) => {
        // Without its kernel here, the notebook would begin a second session.
        if (session.here || session.kind !== 'session' || (await told(reader.attach(session.workload_id)))) {
          await app.commands.execute('docmanager:open', { path: session.path });
        }
      },
      act: (session: IMine, action: MyAction) => void perform(reader, session, action),
      restore: (session: IMine, checkpoint: string, at: string) => void goBack(reader, session, checkpoint, at),
      apply: async (id: string, why: IExplanation) => {
        const made = await applyChange(reader, id, why);
        panel.refresh();
        return made;
      }
    };
    const decided = (one: IRequest) => {
      const said = [standing(one, serverNow()), one.decision?.words].filter(Boolean).join(': ');
      const text = trans.__('Your request %1 (%2): %3', one.id, Object.keys(one.shares).join(', '), said);
      Notification.info(text, { autoClose: false });
    };
    const { whatif, requests, ...parts } = makeParts(reader, doing, serverNow, decided);
    // Budgets and what is asked of them are one thing to look at; but people ask more slowly than GPUs change hands.
    let looked = 0;
    const refresh = async () => {
      await parts.budgets.refresh();
      if (Date.now() - looked > REQUESTS_MS) {
        looked = Date.now();
        await requests.refresh();
      }
    };
    const budgets = { ...parts.budgets, refresh };
    const seen = { ...parts, budgets };
    window.setInterval(() => {
      if (requests.awaits?.() && !document.hidden) {
        requests.refresh().catch(() => undefined); // the panel says what is wrong, once it is seen
      }
    }, AWAITED_MS);
    const panel = new LabPanel(Object.entries(seen).map(([name, part]) => new Section(name, part)), new BoardView(reader, serverNow));
    app.commands.addCommand(WHAT_IF, {
      label: trans.__('What If: Other Budgets…'),
      caption: trans.__('Try other shares on what runs and waits now, and put them into force'),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: async () => {
        await whatif.refresh();
        const body = new Widget({ node: whatif.node });
        const buttons = [Dialog.okButton({ label: trans.__('Close') })];
        await showDialog({ title: trans.__('Other budgets'), body, buttons });
        panel.refresh();
      }
    });
    palette?.addItem({ command: WHAT_IF, category: trans.__('GPU Fair Share') });
    parts.budgets.node.append(press(trans.__('What if…'), () => void app.commands.execute(WHAT_IF)), requests.node);
    addTour(app, reader, palette);
    parts.queue.node.append(press(trans.__('Tour of the last week…'), () => void app.commands.execute(TOUR)));
    panel.title.icon = icon;
    app.serviceManager.events.stream.connect((_, event) => {
      if (event.schema_id === LAB_EVENT) {
        panel.refresh();
      }
    });
    app.shell.add(panel, 'left', { rank: 450 });
    restorer?.add(panel, panel.id);
    app.commands.addCommand(OPEN, {
      label: trans.__('Show GPU Fair Share'),
      caption: trans.__('My sessions, the queue, the budgets and the cluster'),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => app.shell.activateById(panel.id)
    });
    palette?.addItem({ command: OPEN, category: trans.__('GPU Fair Share') });
    const category = (translator ?? nullTranslator).load('jupyterlab').__('Notebook');
    addLaunch(app, reader, icon, { launcher, palette, tracker, category });
  }
};

/** A kernel that lives has variables of its own, which a restore replaces. */
async function goBack(reader: LabReader, session: IMine, checkpoint: string, at: string): Promise<void> {
  const answer = await showDialog({
    title: trans.__('Restore the checkpoint of %1?', at),
    body: trans.__('Variables of %1 that changed since then go back to their saved values.', session.name),
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Restore') })]
  });
  if (answer.button.accept) {
    await told(reader.act(session.workload_id, 'restore', checkpoint));
  }
}

/** Wait for something; what is refused is shown in the server's own words. Whether it went well. */
async function told(work: Promise<void>): Promise<boolean> {
  try {
    await work;
    return true;
  } catch (error) {
    Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
    return false;
  }
}

async function perform(reader: LabReader, session: IMine, action: MyAction): Promise<void> {
  if (action === 'stop') {
    const answer = await showDialog({
      title: trans.__('End %1?', session.name),
      body:
        session.kind === 'session'
          ? trans.__('Its variables are gone then. Parking keeps them.')
          : trans.__('It ends where it is.'),
      buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('End') })]
    });
    if (!answer.button.accept) {
      return;
    }
  }
  await told(reader.act(session.workload_id, action));
}

export default lab;
