/**
 * A form for what a notebook asks for, which says at once what that would mean: when it would start, and what it costs.
 */
import { element, Rows, write } from './dom.js';
import type { LabReader } from './reader.js';
import type { IChoice, IProfile, IWish } from './wire.js';
import { cost, duration, gpus, outlook, trans } from './words.js';

const PROTECTIONS_S = [900, 3600, 2 * 3600, 4 * 3600, 8 * 3600];
/** People type "16" as "1" and "6". */
const PAUSE_MS = 300;

export interface IChosen {
  profile: IProfile;
  wish: IWish;
}

interface IOffered extends IChoice {
  nowS: number;
}

export class WishForm {
  readonly node = element('div', { class: 'jp-gpufair-wish' });

  /** @param start - what the notebook asks for so far */
  constructor(
    private readonly _reader: LabReader,
    private readonly _profiles: IProfile[],
    allocations: string[],
    start: { profile?: string; wish: IWish } = { wish: {} }
  ) {
    this._profile.append(
      ...this._profiles.map(one => element('option', { value: one.name }, one.display_name || one.name))
    );
    this._profile.value = start.profile ?? (this._profiles.find(one => one.gpus > 0) ?? this._profiles[0])?.name ?? '';
    this._allocation.append(...allocations.map(path => element('option', { value: path }, path)));
    this._profile.addEventListener('change', () => this._takeProfile());
    for (const input of [this._allocation, this._gpus, this._nodes]) {
      input.addEventListener('input', () => this._ask());
    }
    this.node.append(
      labelled(trans.__('Profile'), this._profile),
      labelled(trans.__('Budget'), this._allocation),
      labelled(trans.__('GPUs on each node'), this._gpus),
      labelled(trans.__('Nodes'), this._nodes),
      this._choices,
      this._advice
    );
    this._choices.append(element('legend', {}, trans.__('Protected for')), this._list);
    this._takeProfile(start.wish);
  }

  /** What is chosen: only what differs from the profile. */
  get chosen(): IChosen {
    const profile = this._current;
    const wish: IWish = {};
    if (this._allocation.value && this._allocation.value !== profile.allocation) {
      wish.allocation = this._allocation.value;
    }
    if (whole(this._gpus) !== profile.gpus) {
      wish.gpus = whole(this._gpus);
    }
    if (whole(this._nodes) !== profile.nodes) {
      wish.nodes = whole(this._nodes);
    }
    if (this._protectionS !== null && this._protectionS !== profile.min_runtime_s) {
      wish.min_runtime_s = this._protectionS;
    }
    return { profile, wish };
  }

  private get _current(): IProfile {
    return this._profiles.find(one => one.name === this._profile.value) ?? this._profiles[0];
  }

  private _takeProfile(wish: IWish = {}): void {
    const profile = this._current;
    this._gpus.value = String(wish.gpus ?? profile.gpus);
    this._nodes.value = String(wish.nodes ?? profile.nodes);
    const budget = wish.allocation ?? profile.allocation;
    if (budget) {
      this._allocation.value = budget;
    }
    this._protectionS = wish.min_runtime_s ?? profile.min_runtime_s;
    // Those of another profile are not to be chosen from.
    this._offer([]);
    this._ask();
  }

  /** Ask what the present wish means; what is said from now on to an earlier one counts no more. */
  private _ask(): void {
    this._asked += 1;
    clearTimeout(this._timer);
    this._timer = window.setTimeout(() => void this._look(), PAUSE_MS);
  }

  private async _look(): Promise<void> {
    const { profile, wish } = this.chosen;
    const asked = this._asked;
    const spans = new Set([...PROTECTIONS_S, ...(this._protectionS === null ? [] : [this._protectionS])]);
    try {
      const said = await this._reader.coach(profile.name, wish, [...spans].sort((one, other) => one - other));
      if (asked === this._asked) {
        this._show([said.asked, ...said.choices], said.now_s);
        write(this._advice, [...said.warnings, said.advice].filter(text => text).join('\n'));
      }
    } catch (error) {
      if (asked === this._asked) {
        this._offer([]);
        write(this._advice, error instanceof Error ? error.message : String(error));
      }
    }
  }

  private _show(all: IChoice[], nowS: number): void {
    const here = { gpus: whole(this._gpus), nodes: whole(this._nodes) };
    const same = (one: IChoice) => one.gpus === here.gpus && one.nodes === here.nodes && here.gpus > 0;
    const once = new Map(all.filter(same).map(one => [one.min_runtime_s, one]));
    const offered = [...once.values()].sort((one, other) => one.min_runtime_s - other.min_runtime_s);
    this._offer(offered.map(one => ({ ...one, nowS })));
  }

  private _offer(choices: IOffered[]): void {
    this._choices.hidden = choices.length === 0;
    this._rows.show(choices);
  }

  private _made(one: IOffered): HTMLLabelElement {
    const button = element('input', { type: 'radio', name: 'gpufair-protection', value: String(one.min_runtime_s) });
    button.addEventListener('change', () => (this._protectionS = one.min_runtime_s));
    return element('label', {}, button, element('span'));
  }

  private _updated(row: HTMLLabelElement, one: IOffered): void {
    const button = row.querySelector('input') as HTMLInputElement;
    button.checked = one.min_runtime_s === this._protectionS;
    button.disabled = one.outlook === 'refused';
    row.title = one.sentence;
    const means = `${outlook(one, one.nowS)} · ${gpus(one.gpus * one.nodes)}, ${cost(one)}`;
    write(row.querySelector('span') as HTMLElement, `${duration(one.min_runtime_s)}: ${means}`);
  }

  private readonly _profile = element('select');
  private readonly _allocation = element('select');
  private readonly _gpus = element('input', { type: 'number', min: '0', max: '4096', step: '1' });
  private readonly _nodes = element('input', { type: 'number', min: '1', max: '4096', step: '1' });
  private readonly _choices = element('fieldset');
  private readonly _list = element('div');
  /** Each stays the same element through all answers: a click that is under way when one comes is not lost. */
  private readonly _rows = new Rows<IOffered, HTMLLabelElement>(
    this._list,
    one => String(one.min_runtime_s),
    one => this._made(one),
    (row, one) => this._updated(row, one)
  );
  private readonly _advice = element('p', { class: 'jp-gpufair-small', role: 'status' });
  private _protectionS: number | null = null;
  private _timer = 0;
  private _asked = 0;
}

function labelled(name: string, input: HTMLElement): HTMLElement {
  return element('label', {}, element('span', {}, name), input);
}

function whole(input: HTMLInputElement): number {
  return Math.max(Number(input.min), Math.trunc(Number(input.value)) || 0);
}
