/**
 * The item in the status bar.
 */
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import type { Sessions } from './model';
import { serverNow } from './request';
import { detailText, resources, stateText, statusText, ticks } from './text';
import { trans } from './trans';

export class SessionStatus extends Widget {
  constructor(
    private readonly _sessions: Sessions,
    open: (anchor: HTMLElement) => void
  ) {
    super();
    this.id = 'gpufair-session-status';
    this.addClass('jp-gpufair-status');
    this._button = document.createElement('button');
    this._button.type = 'button';
    this._button.className = 'jp-gpufair-status-button';
    this._button.setAttribute('aria-haspopup', 'menu');
    this._button.addEventListener('click', () => open(this._button));
    // Screen readers are told when the state changes, not each second of the countdown.
    this._spoken = document.createElement('span');
    this._spoken.className = 'jp-gpufair-spoken';
    this._spoken.setAttribute('role', 'status');
    this.node.append(this._button, this._spoken);
    _sessions.currentChanged.connect(this._draw, this);
    this._draw();
  }

  dispose(): void {
    clearTimeout(this._timer);
    this._sessions.currentChanged.disconnect(this._draw, this);
    super.dispose();
  }

  protected onAfterAttach(_: Message): void {
    this._draw();
  }

  private _draw(): void {
    clearTimeout(this._timer);
    const session = this._sessions.current;
    this.setHidden(session === null);
    if (session === null) {
      this._spoken.textContent = '';
      return;
    }
    const nowS = serverNow();
    const line = statusText(session, nowS);
    this._button.textContent = line;
    this._button.title = detailText(session, nowS);
    this._button.setAttribute('aria-label', trans.__('GPU session: %1. Open actions.', line));
    this.node.dataset.state = session.state;
    this.node.classList.toggle('jp-mod-attention', session.restore_offered || session.lost.length > 0);

    const settled = ticks(session, nowS) ? trans.__('running, protected') : stateText(session, nowS);
    const spoken = `${resources(session)}: ${settled}`;
    if (this._spoken.textContent !== spoken) {
      this._spoken.textContent = spoken;
    }
    if (ticks(session, nowS)) {
      // On the next change of the shown second, so that no second is shown twice or skipped.
      const untilS = session.protected_until_s ?? nowS;
      this._timer = window.setTimeout(() => this._draw(), (((untilS - nowS) % 1) + 0.02) * 1000);
    }
  }

  private readonly _button: HTMLButtonElement;
  private readonly _spoken: HTMLSpanElement;
  private _timer = 0;
}
