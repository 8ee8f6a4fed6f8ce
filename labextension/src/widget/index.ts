/**
 * A panel in a cell's output, for anywidget. It asks the Jupyter server itself, so it stays alive while its kernel is parked;
 * where there is no such server it shows what the kernel saw when it was made.
 */
import { makeParts, type PartName } from '../lab/parts.js';
import { type Ask, LabReader } from '../lab/reader.js';
import { element, write } from '../lab/dom.js';
import { trans } from '../trans.js';
import { serverOf } from './server.js';

/** anywidget's model, as far as it is used. */
interface IModel {
  get(name: 'part'): PartName;
  get(name: 'snapshot'): Record<string, unknown>;
}

const REFRESH_MS = 5_000;

function render({ model, el }: { model: IModel; el: HTMLElement }): () => void {
  const server = serverOf(document);
  const seen = model.get('snapshot');
  const then: Ask = async ([, ...what]) => seen[what.join('/')] ?? null;
  const now = () => Date.now() / 1000;
  const reader = new LabReader(server ?? then);
  const problem = element('p', { class: 'jp-gpufair-problem', role: 'alert', hidden: '' });
  const said = (error: unknown) => {
    write(problem, error instanceof Error ? error.message : String(error));
    problem.hidden = false;
  };
  const doing = {
    open: (session: { path: string | null }) => void window.open(`${server?.base ?? ''}lab/tree/${session.path}`),
    restore: (session: { workload_id: string; name: string }, checkpoint: string, at: string) => {
      if (window.confirm(trans.__('Bring the variables of %1 back to their values of %2?', session.name, at))) {
        reader.act(session.workload_id, 'restore', checkpoint).then(refresh, said);
      }
    },
    act: (session: { workload_id: string; name: string }, action: Parameters<LabReader['act']>[1]) => {
      if (action !== 'stop' || window.confirm(trans.__('End %1? What was not saved is gone then.', session.name))) {
        reader.act(session.workload_id, action).then(refresh, said);
      }
    }
  };
  const part = makeParts(reader, doing, now)[model.get('part')];
  const refresh = () => part.refresh().then(() => void (problem.hidden = true), said);
  el.classList.add('jp-gpufair-lab', 'jp-gpufair-widget');
  el.append(element('div', { class: 'jp-gpufair-section' }, element('h4', {}, part.title), problem, part.node));
  void refresh();
  const seenNow = () => !document.hidden && el.offsetParent !== null;
  const timers = server
    ? [
        window.setInterval(() => seenNow() && void refresh(), REFRESH_MS),
        window.setInterval(() => seenNow() && part.tick(), 1000)
      ]
    : [];
  return () => timers.forEach(clearInterval);
}

export default { render };
