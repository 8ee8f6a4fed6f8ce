/**
 * The state of a notebook's GPU session in JupyterLab.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';

import lab from './lab/plugin';
import { ACTIONS, DETAILS, addCommands, commandOf, menuOpener } from './actions';
import { EXTEND } from './extend';
import { Sessions } from './model';
import { addNotices } from './notices';
import { addOutputs } from './outputs';
import { SessionStatus } from './status';
import type { Manners } from './told';
import { DOMAIN, speak, trans } from './trans';

const sessionStatus: JupyterFrontEndPlugin<void> = {
  id: '@gpufair/labextension:session-status',
  description: "Shows the state of this notebook's GPU session, and what can be done with it.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ITranslator, IStatusBar, ICommandPalette, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    translator: ITranslator | null,
    statusBar: IStatusBar | null,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null
  ) => {
    speak(translator?.load(DOMAIN));
    const settings = app.serviceManager.serverSettings;
    const sessions = new Sessions(app.serviceManager, tracker);
    addCommands(app.commands, sessions, settings);
    let manners: Manners = {};
    void registry?.load(sessionStatus.id).then(
      wanted => {
        const read = () => (manners = wanted.composite as Manners);
        wanted.changed.connect(read);
        read();
      },
      error => console.warn('gpufair: the settings could not be read', error)
    );
    addNotices(sessions, settings, () => manners);
    addOutputs(tracker, sessions, settings);
    for (const command of [...ACTIONS.map(commandOf), EXTEND, DETAILS]) {
      palette?.addItem({ command, category: trans.__('GPU Fair Share') });
    }
    const item = new SessionStatus(sessions, menuOpener(app.commands, sessions));
    if (statusBar) {
      statusBar.registerStatusItem(sessionStatus.id, { item, align: 'left', rank: 10 });
    } else {
      // Notebook 7 has no status bar: beside the menus, before the kernel's own state.
      app.shell.add(item, 'menu', { rank: 10_000 });
    }
  }
};

export default [sessionStatus, lab];
