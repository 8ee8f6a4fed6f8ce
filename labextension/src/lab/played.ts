/**
 * The table of a what-if: how each allocation fares, as it is and as it would be.
 */
import { element } from './dom.js';
import type { IWhatIf } from './wire.js';
import { fares, trans } from './words.js';

/** Of `fares`. */
const FIGURES = 5;

/** Head and body of the table. */
export function playedRows(found: IWhatIf): HTMLElement[] {
  const cell = (text: string, tag: 'td' | 'th' = 'td') => element(tag, tag === 'th' ? { scope: 'col' } : {}, text);
  const lines = found.allocations.map(one => {
    const figures = one.after === null ? new Array<string>(FIGURES).fill('–') : fares(one.before, one.after);
    const line = element('tr', { 'data-verdict': one.verdict });
    line.append(element('th', { scope: 'row' }, one.path), ...figures.map(text => cell(text)), cell(verdict(one.verdict)));
    return line;
  });
  return [
    element('thead', {}, element('tr', {}, ...heads().map(text => cell(text, text ? 'th' : 'td')))),
    element('tbody', {}, ...lines)
  ];
}

function heads(): string[] {
  return [
    '',
    trans.__('Entitled'),
    trans.__('GPUs held'),
    trans.__('Delivered'),
    trans.__('Median wait'),
    trans.__('Preempted'),
    ''
  ];
}

function verdict(word: 'gains' | 'loses' | ''): string {
  return { gains: trans.__('▲ gains'), loses: trans.__('▼ loses'), '': '' }[word];
}
