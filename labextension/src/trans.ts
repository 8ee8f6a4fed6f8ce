/**
 * The reader's language. Every word that a person sees goes through `trans`, here as in JupyterLab's own code; in JupyterLab
 * its translator answers, elsewhere (a widget's page, a test) the text itself.
 */

/** What is used of JupyterLab's `TranslationBundle`. */
export interface ITrans {
  /** `%1`, `%2` … in the text stand for `args`. */
  __(text: string, ...args: unknown[]): string;
  /** By the plural form that `count` has in the reader's language; `%1` is the count, `%2` … are `args`. */
  _n(one: string, many: string, count: number, ...args: unknown[]): string;
}

/** Named in every catalogue: `jupyter_gpufair.po`. */
export const DOMAIN = 'jupyter_gpufair';

function filled(text: string, args: unknown[]): string {
  return text.replace(/%(\d+)/g, (whole, place: string) => (Number(place) <= args.length ? String(args[Number(place) - 1]) : whole));
}

const plain: ITrans = {
  __: (text, ...args) => filled(text, args),
  _n: (one, many, count, ...args) => filled(count === 1 ? one : many, [count, ...args])
};

let spoken = plain;

/** Asked anew for each text, so that none is fixed before the language is known: keep no translated text in a constant. */
export const trans: ITrans = {
  __: (text, ...args) => spoken.__(text, ...args),
  _n: (one, many, count, ...args) => spoken._n(one, many, count, ...args)
};

/** Speak another language from now on; without one, the texts as they are written. */
export function speak(bundle: ITrans | null = null): void {
  spoken = bundle ?? plain;
}
