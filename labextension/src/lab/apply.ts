/**
 * Making the smallest change that would start a workload now: what it costs is asked about first.
 */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { serverNow } from '../request.js';
import { localised } from '../text.js';
import { element } from './dom.js';
import type { LabReader } from './reader.js';
import type { IExplanation } from './wire.js';
import { applicable, explained, givenUp, trans } from './words.js';

/** Make the change that is named; whether it was made. */
export async function applyChange(reader: LabReader, id: string, why: IExplanation): Promise<boolean> {
  const text = localised(why.change?.text ?? '', serverNow());
  const costs = givenUp(why, serverNow());
  if (costs) {
    const answer = await showDialog({
      title: trans.__('Apply this change?'),
      body: paragraphs(`${text}.\n${costs}`),
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Apply') })]
    });
    if (!answer.button.accept) {
      return false;
    }
  }
  try {
    await reader.amend(id, why.change?.amend ?? {});
  } catch (error) {
    Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
    return false;
  }
  Notification.success(trans.__('Applied: %1', text), { autoClose: 5_000 });
  return true;
}

/** Why something waits, as a dialog, with a button for the change that would start it. */
export async function showWhy(reader: LabReader, id: string): Promise<void> {
  let why: IExplanation | null;
  try {
    why = await reader.why(id);
  } catch (error) {
    Notification.error(error instanceof Error ? error.message : String(error), { autoClose: 10_000 });
    return;
  }
  const lines = why === null ? [trans.__('It does not wait any more.')] : explained(why, serverNow());
  const close = Dialog.cancelButton({ label: trans.__('Close') });
  const answer = await showDialog({
    title: trans.__('Why is it where it is?'),
    body: paragraphs(lines.join('\n')),
    buttons: applicable(why) ? [close, Dialog.okButton({ label: trans.__('Apply') })] : [close]
  });
  if (why !== null && answer.button.accept && applicable(why)) {
    await applyChange(reader, id, why);
  }
}

function paragraphs(text: string): Widget {
  return new Widget({ node: element('div', { class: 'jp-gpufair-details' }, text) });
}
