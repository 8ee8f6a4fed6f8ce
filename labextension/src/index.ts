import { JupyterFrontEndPlugin } from '@jupyterlab/application';

const plugin: JupyterFrontEndPlugin<void> = {
  id: '@gpufair/labextension:session-status',
  autoStart: true,
  activate: () => undefined
};

export default plugin;
