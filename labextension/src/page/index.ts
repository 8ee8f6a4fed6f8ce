/**
 * The service's own page, for people who open no notebook: the panel's parts, to look at, behind a login.
 */
import { BoardView } from '../lab/board.js';
import { element, press, write } from '../lab/dom.js';
import { type IPart, type PartName, makeParts } from '../lab/parts.js';
import { LabReader } from '../lab/reader.js';
import { trans } from '../trans.js';
import { type IVisitor, LoggedOut, ask, listen, login, logout, visitor } from './service.js';

/** Events tell of workloads only; nodes, and metrics that time alone changes, are looked at this often. */
const REFRESH_MS = 10_000;
/** A busy lab changes all the time: that often it is looked at. */
const AT_MOST_MS = 1_000;
/** What changes something is done where one works: in a notebook or a terminal. */
const SHOWN: PartName[] = ['sessions', 'queue', 'budgets', 'cluster', 'pyramid'];

async function start(): Promise<void> {
  const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  // It is good once: what stays in the history and in bookmarks is the page.
  history.replaceState(null, '', location.pathname);
  let why = '';
  if (code) {
    try {
      await login({ code });
    } catch (error) {
      why = error instanceof LoggedOut ? trans.__('That link was used already, or is older than a minute.') : textOf(error);
    }
  }
  try {
    showLab(await visitor());
  } catch (error) {
    showLogin(error instanceof LoggedOut ? why : textOf(error));
  }
}

function showLogin(why = ''): void {
  const problem = element('p', { class: 'jp-gpufair-problem', role: 'alert' }, why);
  problem.hidden = why === '';
  const token = element('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: '' });
  const form = element(
    'form',
    { class: 'gpufair-login jp-gpufair-lab' },
    element('h1', {}, trans.__('GPU Fair Share')),
    element('label', {}, trans.__('Token'), token),
    element('button', { class: 'jp-gpufair-button' }, trans.__('Log in')),
    problem,
    element('p', { class: 'jp-gpufair-small' }, trans.__('`gpufair dashboard` in a terminal opens this page without asking for one.'))
  );
  form.addEventListener('submit', event => {
    event.preventDefault();
    const given = token.value.trim();
    token.value = '';
    const refused = (error: unknown) => {
      write(problem, error instanceof LoggedOut ? trans.__('That is no token of this service, or one that is over.') : textOf(error));
      problem.hidden = false;
      token.focus();
    };
    login({ token: given }).then(async () => showLab(await visitor())).catch(refused);
  });
  document.body.replaceChildren(element('main', {}, form));
  token.focus();
}

function showLab(who: IVisitor): void {
  // Clocks of laptops are wrong by minutes.
  const ahead = who.now_s - Date.now() / 1000;
  const reader = new LabReader(ask);
  const now = () => Date.now() / 1000 + ahead;
  const parts = makeParts(reader, null, now);
  const board = new BoardView(reader, now);
  board.node.classList.add('jp-gpufair-lab');
  const leave = () => {
    stop();
    showLogin();
  };
  const sections = SHOWN.map(name => new Section(name, parts[name], leave));
  const free = element('span', { class: 'jp-gpufair-figure' });
  const count = (now: IVisitor) => write(free, trans.__('%1 of %2 GPUs free', now.gpus.free, now.gpus.total));
  count(who);
  const refresh = () => {
    if (!document.hidden) {
      void board.refresh();
      sections.forEach(section => void section.refresh());
      visitor().then(count, () => undefined); // the sections say what is wrong
    }
  };
  let due: number | undefined;
  const soon = () => {
    due ??= window.setTimeout(() => {
      due = undefined;
      refresh();
    }, AT_MOST_MS);
  };
  const timers = [
    window.setInterval(refresh, REFRESH_MS),
    window.setInterval(() => !document.hidden && sections.forEach(section => section.tick()), 1000)
  ];
  const deaf = listen(soon);
  document.addEventListener('visibilitychange', refresh);
  const stop = () => {
    deaf();
    timers.forEach(clearInterval);
    clearTimeout(due);
    document.removeEventListener('visibilitychange', refresh);
  };
  const out = press(trans.__('Log out'), () => void logout().catch(() => undefined).then(leave));
  document.body.replaceChildren(
    element('header', { class: 'gpufair-head jp-gpufair-lab' }, element('h1', {}, trans.__('GPU Fair Share')), free, element('span', {}, who.user), out),
    board.node,
    element('main', { class: 'gpufair-parts jp-gpufair-lab' }, ...sections.map(section => section.node))
  );
  refresh();
}

/** One of the parts, with what cannot be had of it now. */
class Section {
  readonly node: HTMLElement;

  constructor(
    name: string,
    private readonly _part: IPart,
    private readonly _leave: () => void
  ) {
    const title = element('h2', { id: `gpufair-${name}` }, _part.title);
    // In the tab order, so that the arrow keys scroll it.
    const about = { class: 'jp-gpufair-section', 'aria-labelledby': title.id, tabindex: '0' };
    this.node = element('section', about, title, this._problem, _part.node);
    this._problem.hidden = true;
  }

  async refresh(): Promise<void> {
    if (this._asking) {
      return;
    }
    this._asking = true;
    try {
      await this._part.refresh();
      this._problem.hidden = true;
    } catch (error) {
      if (error instanceof LoggedOut && this.node.isConnected) {
        this._leave();
      } else {
        write(this._problem, textOf(error));
        this._problem.hidden = false;
      }
    } finally {
      this._asking = false;
    }
  }

  tick(): void {
    this._part.tick();
  }

  private readonly _problem = element('p', { class: 'jp-gpufair-problem', role: 'alert' });
  private _asking = false;
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

void start();
