/**
 * Every node with its GPUs, coloured by team: what is free, held, kept for a gang, cordoned or gone.
 */
import { Rows, attribute, element, write } from './dom.js';
import { type Teams, teamOf } from './teams.js';
import type { INode, IWorkload } from './wire.js';
import { nodeState, nodeText, trans } from './words.js';

const FREE = 'var(--jp-layout-color3)';
const KEPT = 'var(--jp-border-color1)';

/** (colour, GPUs) from the left to the right. */
type Piece = [string, number];

export class ClusterView {
  readonly node = element('div', { class: 'jp-gpufair-cluster' });

  constructor(
    private readonly _teams: Teams,
    private readonly _now: () => number
  ) {
    const map = element('div', { class: 'jp-gpufair-map', role: 'group', 'aria-label': trans.__('Nodes') });
    this.node.append(this._legend, map, this._about);
    this._rows = new Rows<INode, HTMLButtonElement>(map, one => one.name, one => this._make(one), (row, one) => this._update(row, one));
    map.addEventListener('keydown', event => walk(map, event));
  }

  show(nodes: INode[], workloads: IWorkload[]): void {
    this._here = new Map();
    for (const workload of workloads) {
      for (const name of new Set(workload.leases.map(lease => lease.node))) {
        this._here.set(name, [...(this._here.get(name) ?? []), workload]);
      }
    }
    this._pools = [...new Set(nodes.map(node => node.pool))].sort();
    const sorted = this._pools.flatMap(pool => nodes.filter(node => node.pool === pool));
    this._nodes = new Map(sorted.map(node => [node.name, node]));
    this._first = new Map([...sorted].reverse().map(node => [node.pool, node.name]));
    this._rows.show(sorted);
    this.tell();
    const swatches = [...this._teams.names.map((team): [string, string] => [this._teams.colour(team), team]), [FREE, trans.__('free')]];
    if (this._legend.childElementCount !== swatches.length) {
      this._legend.replaceChildren(
        ...swatches.map(([colour, name]) => {
          const swatch = element('span', { class: 'jp-gpufair-swatch' }, name);
          swatch.style.setProperty('--team', colour);
          return swatch;
        })
      );
    }
  }

  private _make(node: INode): HTMLButtonElement {
    const made = element('button', { type: 'button', class: 'jp-gpufair-node' });
    made.addEventListener('click', () => {
      this._chosen = node.name;
      this.tell();
    });
    return made;
  }

  private _update(row: HTMLButtonElement, node: INode): void {
    const lines = nodeText(node, this._here.get(node.name) ?? [], this._now());
    const gpus = Math.max(1, node.gpus);
    const colours = gradient(this._pieces(node), gpus);
    // Most nodes of a large lab look as they did; what is written is laid out again, even where it is the same.
    if (this._colours.get(row) !== colours) {
      this._colours.set(row, colours);
      row.style.cssText = `--gpus: ${gpus}; background-image: ${colours}`;
    }
    // A gap before each cluster.
    row.classList.toggle('jp-gpufair-pool-begins', this._pools.length > 1 && this._begins(node));
    attribute(row, 'data-state', node.drain ? 'draining' : node.state);
    attribute(row, 'title', lines.join('\n'));
    const named = this._pools.length > 1 ? `${lines[0]}, ${node.pool}` : lines[0];
    attribute(row, 'aria-label', node.state === 'ready' ? named : `${named}, ${nodeState(node)}`);
    // One stop for Tab; arrows walk from there.
    attribute(row, 'tabindex', node.name === (this._chosen ?? this._nodes.keys().next().value) ? '0' : '-1');
  }

  private _pieces(node: INode): Piece[] {
    const held = (this._here.get(node.name) ?? []).map((workload): Piece => {
      const count = workload.leases.filter(lease => lease.node === node.name).reduce((sum, lease) => sum + lease.gpus, 0);
      return [this._teams.colour(teamOf(workload.allocation)), count];
    });
    const kept = Math.min(node.free_gpus, node.landings.reduce((sum, landing) => sum + landing.gpus, 0));
    return [...held, [FREE, node.free_gpus - kept], [KEPT, kept]];
  }

  private _begins(node: INode): boolean {
    return node.name === this._first.get(node.pool);
  }

  /** About the chosen node. */
  tell(): void {
    const node = this._chosen === undefined ? undefined : this._nodes.get(this._chosen);
    const lines = node ? nodeText(node, this._here.get(node.name) ?? [], this._now()) : [];
    write(this._about, lines.join('\n'));
  }

  private readonly _legend = element('div', { class: 'jp-gpufair-legend', 'aria-hidden': 'true' });
  private readonly _about = element('div', { class: 'jp-gpufair-why', role: 'status' });
  private readonly _rows: Rows<INode, HTMLButtonElement>;
  private _nodes = new Map<string, INode>();
  private readonly _colours = new WeakMap<HTMLElement, string>();
  private _here = new Map<string, IWorkload[]>();
  private _chosen: string | undefined;
  private _pools: string[] = [];
  private _first = new Map<string, string>();
}

/** Hard stops, one after the other: one element a node, however many GPUs it has. */
export function gradient(pieces: Piece[], gpus: number): string {
  let from = 0;
  const stops = pieces
    .filter(([, count]) => count > 0)
    .map(([colour, count]) => {
      const begin = (100 * from) / gpus;
      from += count;
      return `${colour} ${begin}% ${(100 * from) / gpus}%`;
    });
  return stops.length ? `linear-gradient(90deg, ${stops.join(', ')})` : 'none';
}

function walk(map: HTMLElement, event: KeyboardEvent): void {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step === undefined || !(document.activeElement instanceof HTMLElement)) {
    return;
  }
  const all = [...map.children] as HTMLElement[];
  const next = all[all.indexOf(document.activeElement) + step];
  if (next) {
    event.preventDefault();
    document.activeElement.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
