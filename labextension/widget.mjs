// Packs what runs outside of JupyterLab into one file each, without imports: the widgets' code, which anywidget hands to the
// page, and the service's own page.
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { rspack } from '@rspack/core';

const widget = resolve('../jupyter_gpufair/labextension');
const page = resolve('../scheduler/gpufair/service/static');

function bundle(entry, path, filename) {
  return {
    mode: 'production',
    devtool: false,
    entry,
    experiments: { outputModule: true },
    output: { path, filename, module: true, library: { type: 'module' }, clean: false }
  };
}

const packed = rspack([
  bundle('./lib/widget/index.js', widget, 'widget.js'),
  bundle('./lib/page/index.js', page, 'page.js')
]);
packed.run((error, stats) => {
  if (error || stats.hasErrors()) {
    console.error(error ?? stats.toString('errors-only'));
    process.exitCode = 1;
  }
  copyFileSync('src/style/lab.css', `${widget}/widget.css`);
  copyFileSync('src/page/index.html', `${page}/index.html`);
  writeFileSync(`${page}/page.css`, readFileSync('src/page/page.css', 'utf8') + readFileSync('src/style/lab.css', 'utf8'));
  packed.close(() => undefined);
});
