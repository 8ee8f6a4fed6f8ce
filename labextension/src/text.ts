/**
 * A session in words. Pure: the time comes in.
 */
import { trans } from './trans.js';
import type { Action, ISession, State } from './wire';

export const MOVE_TO_CPU = 'move_to_cpu';

/** `4:05`, `1:02:03`; rounded up, so that 0:00 is never shown while time is left. */
export function countdown(leftS: number): string {
  const whole = Math.max(0, Math.ceil(leftS));
  const two = (part: number) => String(part).padStart(2, '0');
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const seconds = two(whole % 60);
  return hours ? `${hours}:${two(minutes)}:${seconds}` : `${minutes}:${seconds}`;
}

// Made once: each costs as much as a hundred moments that it writes, and a large lab shows thousands.
const TIME = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const DAY = new Intl.DateTimeFormat([], { weekday: 'short' });

/** The time of day, with the day where it is another one. */
export function clock(atS: number, nowS: number): string {
  const [at, now] = [new Date(atS * 1000), new Date(nowS * 1000)];
  // Less than a day apart and the same day of the month: the same day.
  const sameDay = Math.abs(atS - nowS) < 86_400 && at.getDate() === now.getDate();
  return sameDay ? TIME.format(at) : `${DAY.format(at)} ${TIME.format(at)}`;
}

/** The scheduler's sentences name moments in UTC, the same for everybody; here they become the reader's. */
export function localised(sentence: string, nowS: number): string {
  return sentence.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?Z)/g, (_, day: string, time: string) =>
    clock(Date.parse(`${day}T${time}`) / 1000, nowS)
  );
}

export function cells(count: number): string {
  return trans._n('%1 cell', '%1 cells', count);
}

export function gpus(count: number): string {
  return trans._n('%1 GPU', '%1 GPUs', count);
}

/** What the session has or asks for: `1 GPU`, `2 × H200`, `CPU`. */
export function resources(session: ISession): string {
  if (session.gpus === 0) {
    return trans.__('CPU');
  }
  return session.gpu_type ? `${session.gpus} × ${session.gpu_type}` : gpus(session.gpus);
}

/** Whether it holds GPUs now. */
export function onGpus(session: ISession): boolean {
  return session.state === 'running' && session.gpus > 0 && !session.on_cpu;
}

/** Whether somebody else takes its GPUs: not its own wish, nor its idleness, nor the end of the service. */
export function cut(session: ISession): boolean {
  return session.leaving !== null && !['park', 'idle', 'shutdown'].includes(session.leaving);
}

/** Whether the text changes by itself as time passes. */
export function ticks(session: ISession, nowS: number): boolean {
  return session.state === 'running' && !session.moving && session.protected_until_s !== null && session.protected_until_s > nowS;
}

/** When something starts, if anybody can say: a promise comes before an estimate. */
export function starts(one: { start_by_s: number | null; estimate_s: number | null }, nowS: number): string {
  if (one.start_by_s !== null) {
    return trans.__('starts by %1', clock(one.start_by_s, nowS));
  }
  return one.estimate_s === null ? '' : trans.__('starts about %1', clock(one.estimate_s, nowS));
}

/** A state in one word. */
function stateWord(state: State): string {
  const words: Record<State, string> = {
    queued: trans.__('queued'),
    starting: trans.__('starting'),
    restoring: trans.__('restoring'),
    running: trans.__('running'),
    checkpointing: trans.__('saving'),
    stopping: trans.__('stopping'),
    parked: trans.__('parked'),
    ended: trans.__('ended')
  };
  return words[state] ?? state;
}

function running(session: ISession, nowS: number): string {
  if (session.moving) {
    return trans.__('running, moving to a CPU node');
  }
  if (session.on_cpu) {
    const open = trans.__('open on a CPU node');
    return session.position === null ? open : `${open}, ${queued(session, nowS)}`;
  }
  const parts = [trans.__('running')];
  if (session.gpus > 0 && session.protected_until_s !== null) {
    const leftS = session.protected_until_s - nowS;
    parts.push(leftS > 0 ? trans.__('protected %1', countdown(leftS)) : trans.__('may be preempted'));
    if (!session.resumable) {
      parts.push(trans.__('cannot be saved'));
    }
  }
  if (session.suggestion?.kind === MOVE_TO_CPU) {
    parts.push(trans.__('GPUs not used'));
  }
  return parts.join(', ');
}

function queued(session: ISession, nowS: number): string {
  const place = session.position === null ? trans.__('queued') : trans.__('queued, place %1', session.position);
  const at = starts(session, nowS);
  return at ? `${place}, ${at}` : place;
}

/** The session's state in a few words, without its resources. */
export function stateText(session: ISession, nowS: number): string {
  switch (session.state) {
    case 'queued':
      return queued(session, nowS);
    case 'running':
      return running(session, nowS);
    case 'restoring':
      return session.progress
        ? trans.__('restoring %1 %', Math.floor(session.progress * 100))
        : stateWord(session.state);
    case 'checkpointing':
      return cut(session) && session.deadline_s !== null
        ? trans.__('saving, has to leave by %1', clock(session.deadline_s, nowS))
        : stateWord(session.state);
    default:
      return session.withheld || stateWord(session.state);
  }
}

/** The line in the status bar. */
export function statusText(session: ISession, nowS: number): string {
  const has = resources(session);
  const busy = onGpus(session) && session.utilization !== null;
  const parts = [busy ? trans.__('%1 %2 % busy', has, Math.round(100 * (session.utilization ?? 0))) : has];
  parts.push(stateText(session, nowS));
  if (session.held_cells > 0) {
    parts.push(trans._n('%1 cell held', '%1 cells held', session.held_cells));
  }
  return parts.join(' · ');
}

/** The tooltip: all that the line had no room for. */
export function detailText(session: ISession, nowS: number): string {
  const lines = [statusText(session, nowS)];
  if (session.reason) {
    lines.push(localised(session.reason, nowS));
  }
  if (session.suggestion) {
    lines.push(session.suggestion.text);
  }
  if (session.not_moved) {
    lines.push(trans.__('Not moved to a CPU node: %1', session.not_moved));
  }
  if (!session.resumable) {
    lines.push(trans.__('This kernel cannot save its variables: they are lost when it has to make room, or is parked.'));
  }
  lines.push(trans.__('Budget: %1', session.allocation));
  if (session.node) {
    const devices = session.device_ids.length ? ` (${session.device_ids.join(', ')})` : '';
    lines.push(trans.__('Node: %1', `${session.node}${devices}`));
  }
  if (onGpus(session)) {
    lines.push(
      session.utilization === null
        ? trans.__('How busy the GPUs are is not known: nothing measures them.')
        : trans.__('GPUs busy in the last minute: %1 %', Math.round(100 * session.utilization))
    );
  }
  if (session.checkpoint) {
    lines.push(trans.__('Saved at %1, %2', clock(session.checkpoint.at_s, nowS), size(session.checkpoint.size_bytes)));
  }
  for (const lost of session.lost) {
    lines.push(trans.__('Not saved: %1 (%2)', lost.name, lost.reason));
  }
  return lines.join('\n');
}

export function size(bytes: number): string {
  const units = [trans.__('B'), trans.__('kB'), trans.__('MB'), trans.__('GB'), trans.__('TB')];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}

/** Names of what was not saved, as many as fit: a notification is cut after 140 characters. */
export function lostText(session: ISession): string {
  if (session.lost.length === 0) {
    return '';
  }
  const shown = session.lost.slice(0, 3).map(lost => lost.name);
  const more = session.lost.length - shown.length;
  const names = shown.join(', ');
  return more > 0
    ? trans._n('Not saved: %2 and %1 more.', 'Not saved: %2 and %1 more.', more, names)
    : trans.__('Not saved: %1.', names);
}

/** Whether it runs on GPUs, and can be moved to a CPU node with all its variables. */
export function movable(session: ISession): boolean {
  return session.state === 'running' && session.resumable && !session.on_cpu && !session.moving;
}

/** Whether it has no GPUs, and variables that can be opened on a CPU node. */
function reopens(session: ISession): boolean {
  return session.checkpoint !== null && ['parked', 'queued'].includes(session.state);
}

/** Which actions make sense now. */
export function allows(session: ISession, action: Action): boolean {
  switch (action) {
    case 'checkpoint':
      return session.state === 'running' && session.resumable;
    case 'park':
      return session.state === 'running';
    case 'resume':
      return session.state === 'parked' || (session.on_cpu && session.position === null);
    case 'open':
      return session.gpus > 0 && (movable(session) || reopens(session));
    case 'dismiss':
      return session.suggestion !== null;
    case 'restore':
      return session.checkpoint !== null && (session.restore_offered || session.state === 'running');
  }
}
