/**
 * Recorded outputs against those that a cell shows. Pure.
 */
import type * as nbformat from '@jupyterlab/nbformat';

import type { IExecution } from './wire';

function joined(text: unknown): string {
  return Array.isArray(text) ? text.join('') : String(text ?? '');
}

function isStream(output: nbformat.IOutput | undefined, name?: unknown): output is nbformat.IStream {
  return output?.output_type === 'stream' && (name === undefined || output.name === name);
}

/** Outputs in one form, so that equal ones compare equal: text joined, neighbouring streams of one name merged. */
export function normalised(outputs: nbformat.IOutput[]): nbformat.IOutput[] {
  const result: nbformat.IOutput[] = [];
  for (const output of outputs) {
    const last = result[result.length - 1];
    if (!isStream(output)) {
      result.push(output);
    } else if (isStream(last, output.name)) {
      result[result.length - 1] = { ...last, text: joined(last.text) + joined(output.text) };
    } else {
      result.push({ output_type: 'stream', name: output.name, text: joined(output.text) });
    }
  }
  return result;
}

/** JSON with sorted keys; `transient` is never kept in a notebook, lines of text may be split. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.length > 0 && value.every(item => typeof item === 'string') ? joined(value) : value.map(canonical);
  }
  if (value && typeof value === 'object') {
    const entries = Object.entries(value).filter(([key]) => key !== 'transient');
    return entries.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, item]) => [key, canonical(item)]);
  }
  return value;
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(canonical(a)) === JSON.stringify(canonical(b));
}

/**
 * What must be added to the shown outputs so that the recorded ones stand there: an empty list when they do already,
 * null when the shown ones are no beginning of the recorded ones and must be replaced.
 */
export function missing(shown: nbformat.IOutput[], recorded: nbformat.IOutput[]): nbformat.IOutput[] | null {
  const have = normalised(shown);
  const want = normalised(recorded);
  if (have.length > want.length) {
    return null;
  }
  for (let index = 0; index < have.length; index++) {
    const was = have[index];
    const is = want[index];
    if (same(was, is)) {
      continue;
    }
    // Only a stream that is last can have grown.
    if (index !== have.length - 1 || !isStream(was) || !isStream(is, was.name)) {
      return null;
    }
    const [before, now] = [joined(was.text), joined(is.text)];
    if (!now.startsWith(before)) {
      return null;
    }
    return [{ ...is, text: now.slice(before.length) }, ...want.slice(index + 1)];
  }
  return want.slice(have.length);
}

/**
 * The record as the cell should show it. A kernel that is killed cannot say so: why its cell was cut is said by the
 * server. A page that was open then may know it better than a server that was started since.
 */
export function withNote(shown: nbformat.IOutput[], execution: IExecution): nbformat.IOutput[] {
  const note = shown[shown.length - 1];
  const recorded = execution.outputs;
  if (execution.status !== 'interrupted' || note?.output_type !== 'error') {
    return recorded;
  }
  const last = recorded[recorded.length - 1];
  return [...(last?.output_type === 'error' ? recorded.slice(0, -1) : recorded), note];
}

/** The latest execution of each cell. */
export function latestByCell(executions: IExecution[]): Map<string, IExecution> {
  const latest = new Map<string, IExecution>();
  for (const execution of executions) {
    if (execution.cell_id !== null) {
      latest.set(execution.cell_id, execution);
    }
  }
  return latest;
}
