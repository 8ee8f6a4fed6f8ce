/**
 * The side panel in JupyterLab, and in Notebook's tree and notebook pages.
 */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, Notification, showDialog } from '@jupyterlab/apputils';
import { LabIcon } from '@jupyterlab/ui-components';

import { act, actOnMine, getBudgets, getMine, getNodes, getQueue, getWhy, getWorkloads, serverNow } from '../request.js';
import { BudgetsView } from './budgets.js';
import { ClusterView } from './cluster.js';
import { MineView, type MyAction } from './mine.js';
import { LabPanel, Section } from './panel.js';
import { QueueView } from './queue.js';
import { Teams, teamOf } from './teams.js';
import { type IMine, LAB_EVENT } from './wire.js';

const OPEN = 'gpufair:open-lab';

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
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (app: JupyterFrontEnd, palette: ICommandPalette | null, restorer: ILayoutRestorer | null) => {
    const settings = app.serviceManager.serverSettings;
    const teams = new Teams();

    const doing = {
      open: (session: IMine) => void app.commands.execute('docmanager:open', { path: session.path }),
      act: (session: IMine, action: MyAction) => void perform(app, session, action)
    };
    const mine = new MineView(doing, serverNow);
    const queue = new QueueView(teams, id => getWhy(settings, id));
    const budgets = new BudgetsView(teams);
    const cluster = new ClusterView(teams, serverNow);

    /** Colours need the names of all teams, whichever part is open. */
    const read = async () => {
      const answer = await getBudgets(settings);
      teams.know(answer.allocations.map(one => teamOf(one.path)));
      return answer;
    };
    const panel = new LabPanel([
      new Section(
        'mine',
        'My Sessions',
        mine.node,
        async () => mine.show(await getMine(settings)),
        () => mine.draw()
      ),
      new Section('queue', 'Queue', queue.node, async () => {
        const [answer] = await Promise.all([getQueue(settings), read()]);
        queue.show(answer);
      }),
      new Section('budgets', 'Budgets', budgets.node, async () => budgets.show(await read())),
      new Section('cluster', 'Cluster', cluster.node, async () => {
        const [nodes, workloads] = await Promise.all([getNodes(settings), getWorkloads(settings), read()]);
        cluster.show(nodes, workloads);
      }, () => cluster.tell())
    ]);
    panel.title.icon = icon;
    app.serviceManager.events.stream.connect((_, event) => {
      if (event.schema_id === LAB_EVENT) {
        panel.refresh();
      }
    });
    app.shell.add(panel, 'left', { rank: 450 });
    restorer?.add(panel, panel.id);
    app.commands.addCommand(OPEN, {
      label: 'Show GPU Fair Share',
      caption: 'My sessions, the queue, the budgets and the cluster',
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => app.shell.activateById(panel.id)
    });
    palette?.addItem({ command: OPEN, category: 'GPU Fair Share' });
  }
};

async function perform(app: JupyterFrontEnd, session: IMine, action: MyAction): Promise<void> {
  const settings = app.serviceManager.serverSettings;
  if (action === 'stop') {
    const answer = await showDialog({
      title: `End ${session.name}?`,
      body: session.kind === 'session' ? 'Its variables are gone then. Parking keeps them.' : 'It ends where it is.',
      buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'End' })]
    });
    if (!answer.button.accept) {
      return;
    }
  }
  try {
    if (!session.here) {
      await actOnMine(settings, session.workload_id, action);
    } else if (action === 'stop') {
      await app.serviceManager.kernels.shutdown(session.kernel_id);
    } else {
      await act(settings, session.kernel_id, action);
    }
  } catch (error) {
    Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
  }
}

export default lab;
