/**
 * One colour for each team, told apart by readers who see fewer colours too: Okabe and Ito's palette, without black.
 */
const PALETTE = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'];

export function teamOf(allocation: string): string {
  return allocation.split('/', 1)[0];
}

/** Colours by the order of names, so that a team keeps its own while teams stay the same. */
export class Teams {
  /** Learn of teams; their colours are those of the sorted names. */
  know(names: Iterable<string>): void {
    const all = [...new Set(names)].filter(name => name).sort();
    this._colours = new Map(all.map((name, index) => [name, PALETTE[index % PALETTE.length]]));
  }

  colour(team: string): string {
    return this._colours.get(team) ?? 'var(--jp-ui-font-color3)';
  }

  get names(): string[] {
    return [...this._colours.keys()];
  }

  private _colours = new Map<string, string>();
}
