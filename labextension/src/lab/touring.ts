/**
 * The command that opens the tour, as a dialog: Escape closes it, the arrow keys walk.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, type ICommandPalette, Notification, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import type { LabReader } from './reader.js';
import { TourView } from './tour.js';
import { trans } from './words.js';

export const TOUR = 'gpufair:tour';

export function addTour(app: JupyterFrontEnd, reader: LabReader, palette: ICommandPalette | null): void {
  app.commands.addCommand(TOUR, {
    label: trans.__('Tour of the Last Week'),
    caption: trans.__('Why some workloads waited, ran or were preempted, step by step; yours first'),
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const view = new TourView();
      try {
        view.show(await reader.tour());
      } catch (error) {
        Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
        return;
      }
      // Older dialogs take Enter for their own button, wherever one stands.
      const enter = (event: KeyboardEvent) => {
        if (event.key === 'Enter' && view.node.contains(event.target as Node)) {
          event.stopPropagation();
        }
      };
      document.addEventListener('keydown', enter, true);
      await showDialog({
        title: trans.__('The last week in this lab'),
        body: new Widget({ node: view.node }),
        buttons: [Dialog.okButton({ label: trans.__('Close') })],
        focusNodeSelector: '.jp-gpufair-tour .jp-gpufair-button:last-child'
      }).finally(() => document.removeEventListener('keydown', enter, true));
    }
  });
  palette?.addItem({ command: TOUR, category: trans.__('GPU Fair Share') });
}
