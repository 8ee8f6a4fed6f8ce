// The words of the front end: `npm run messages` writes those that go through `trans` as a gettext template.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

import ts from 'typescript';

/** What people see or hear, as attributes of elements and as fields of JupyterLab's options and widgets. */
const SHOWN = new Set([
  ...['alt', 'aria-description', 'aria-label', 'aria-roledescription', 'aria-valuetext', 'placeholder', 'title'],
  ...['ariaLabel', 'body', 'caption', 'category', 'innerText', 'label', 'message', 'okLabel', 'textContent']
]);
/** Which arguments of these functions are shown; a negative number counts all from there on. */
const SAID = {
  alert: [0],
  confirm: [0],
  element: [-2],
  emit: [0],
  error: [0],
  info: [0],
  labelled: [0],
  press: [0],
  prompt: [0],
  success: [0],
  warning: [0],
  write: [1]
};

export function sources(folder = 'src') {
  return readdirSync(folder, { recursive: true })
    .filter(name => name.endsWith('.ts'))
    .sort()
    .map(name => join(folder, name));
}

function parsed(name, text) {
  return ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true);
}

/** `trans.__(…)` and `trans._n(…)`, whatever object has `trans`. */
function translation(node) {
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) {
    return null;
  }
  const { name, expression } = node.expression;
  const count = { __: 1, _n: 2 }[name.text];
  return count && /(^|\.|_)trans$/.test(expression.getText()) ? node.arguments.slice(0, count) : null;
}

function line(file, node) {
  return file.getLineAndCharacterOfPosition(node.getStart()).line + 1;
}

/** [text, plural or '', places], sorted by text. @throws for a text that is no literal, and so in no catalogue. */
export function messages(names = sources()) {
  const found = new Map();
  for (const name of names) {
    const file = parsed(name, readFileSync(name, 'utf8'));
    const walk = node => {
      const texts = translation(node);
      if (texts && name !== join('src', 'trans.ts')) {
        for (const text of texts) {
          if (!ts.isStringLiteral(text) && !ts.isNoSubstitutionTemplateLiteral(text)) {
            throw new Error(`${name}:${line(file, node)}: a text to translate is one literal, with %1 for what varies`);
          }
        }
        const [one, many = ''] = texts.map(text => text.text);
        const key = `${one}\0${many}`;
        const places = found.get(key)?.[2] ?? [];
        found.set(key, [one, many, [...places, `${name}:${line(file, node)}`]]);
      }
      ts.forEachChild(node, walk);
    };
    walk(file);
  }
  return [...found.values()].sort(([one], [other]) => (one < other ? -1 : 1));
}

export function template(found = messages()) {
  const quoted = text => JSON.stringify(text);
  const head = ['msgid ""', 'msgstr ""', '"Content-Type: text/plain; charset=UTF-8\\n"', '"Content-Transfer-Encoding: 8bit\\n"'];
  const entries = found.map(([one, many, places]) =>
    [
      ...places.map(place => `#: labextension/${place}`),
      `msgid ${quoted(one)}`,
      ...(many ? [`msgid_plural ${quoted(many)}`, 'msgstr[0] ""', 'msgstr[1] ""'] : ['msgstr ""'])
    ].join('\n')
  );
  return `${[head.join('\n'), ...entries].join('\n\n')}\n`;
}

/** Places where a literal of the source reaches a person without `trans`. */
export function untranslated(name, text = readFileSync(name, 'utf8')) {
  const file = parsed(name, text);
  const found = new Set();
  /** Literals of an expression whose value is shown. */
  const look = node => {
    if (translation(node)) {
      return;
    }
    const written = ts.isStringLiteralLike(node) || ts.isTemplateHead(node) || ts.isTemplateMiddleOrTemplateTail(node);
    if (written && /\p{L}{2}/u.test(node.text)) {
      found.add(`${name}:${line(file, node)}: ${node.getText()}`);
    }
    if (ts.isConditionalExpression(node)) {
      [node.whenTrue, node.whenFalse].forEach(look);
    } else if (ts.isTemplateExpression(node)) {
      [node.head, ...node.templateSpans.flatMap(span => [span.expression, span.literal])].forEach(look);
    } else if (ts.isBinaryExpression(node)) {
      const joins = ['+', '??', '||'].includes(node.operatorToken.getText());
      (joins ? [node.left, node.right] : node.operatorToken.getText() === '&&' ? [node.right] : []).forEach(look);
    } else if (ts.isParenthesizedExpression(node) || ts.isSpreadElement(node)) {
      look(node.expression);
    } else if (ts.isArrayLiteralExpression(node)) {
      node.elements.forEach(look);
    } else if (ts.isArrowFunction(node) && !ts.isBlock(node.body)) {
      look(node.body);
    }
  };
  const walk = node => {
    if (ts.isCallExpression(node)) {
      const called = ts.isPropertyAccessExpression(node.expression) ? node.expression : null;
      const who = called ? called.name.text : node.expression.getText();
      // What goes to the console is for developers.
      const places = called?.expression.getText() === 'console' ? [] : (SAID[who] ?? []);
      node.arguments.forEach((argument, index) => {
        if (places.some(place => (place < 0 ? index >= -place : index === place))) {
          look(argument);
        }
      });
      if (['attribute', 'setAttribute'].includes(who)) {
        const [attribute, value] = node.arguments.slice(-2);
        if (ts.isStringLiteral(attribute) && SHOWN.has(attribute.text)) {
          look(value);
        }
      }
    } else if (ts.isPropertyAssignment(node) && SHOWN.has(node.name.text)) {
      look(node.initializer);
    } else if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
      const target = node.left;
      if (ts.isPropertyAccessExpression(target) && SHOWN.has(target.name.text)) {
        look(node.right);
      }
    } else if (ts.isNewExpression(node) && node.expression.getText() === 'Error') {
      node.arguments.forEach(look);
    }
    ts.forEachChild(node, walk);
  };
  walk(file);
  return [...found];
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const into = process.argv[2] ?? '../build/jupyter_gpufair.pot';
  mkdirSync(dirname(into), { recursive: true });
  writeFileSync(into, template());
  console.log(`${into}: ${messages().length} texts`);
}
