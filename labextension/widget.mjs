// Packs the widgets' code into one file without imports, which anywidget hands to the page.
import { copyFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { rspack } from '@rspack/core';

const into = resolve('../jupyter_gpufair/labextension');
const packed = rspack({
  mode: 'production',
  devtool: false,
  entry: './lib/widget/index.js',
  experiments: { outputModule: true },
  output: { path: into, filename: 'widget.js', module: true, library: { type: 'module' }, clean: false }
});
packed.run((error, stats) => {
  if (error || stats.hasErrors()) {
    console.error(error ?? stats.toString('errors-only'));
    process.exitCode = 1;
  }
  copyFileSync('src/style/lab.css', `${into}/widget.css`);
  packed.close(() => undefined);
});
