/** What was typed or printed, line by line; its keys are explained one at a time. A command, an answer, counters. */

import { h, say } from '../dom.js';
import { breakable, prose } from './prose.js';
import { conditionsOf } from './served.js';

export function mountLines(root, stage) {
  const { figure, ctx } = stage;
  const { t } = ctx;
  const told = explanations(figure.keys);
  const last = told.length + 1;
  const marks = new Map(told.map(({ key }) => [key, []]));
  const code = h(
    'div',
    { class: 'sv-l-code', role: 'group', 'aria-label': t(`lesson.lines.${figure.show}`) },
    ...figure.lines.map((line) => h('div', { class: 'sv-l-code-line' }, ...line.map(piece))),
  );
  const hint = h('p', { class: 'sv-l-about sv-l-keyed-hint', role: 'status' });
  const items = told.map(({ key, html }) => {
    const said = h('dd');
    said.append(html);
    return h('div', { class: 'sv-l-keyed-item' }, h('dt', {}, h('code', {}, ...breakable(key))), said);
  });
  root.append(code, hint, h('dl', { class: 'sv-l-keyed', 'aria-live': 'polite' }, ...items), conditionsOf(figure, ctx));

  /** A key that the words explain is a button; whatever else stands there is only text. */
  function piece({ text, key }) {
    if (!marks.has(key)) return h('span', {}, text);
    const place = told.findIndex((each) => each.key === key) + 1;
    const onClick = () => {
      go(place);
      stage.moved?.(place);
    };
    const button = h('button', { class: 'sv-l-code-key', type: 'button', 'aria-pressed': 'false', onClick }, ...breakable(text));
    marks.get(key).push(button);
    return button;
  }

  function go(position) {
    const whole = position >= last;
    told.forEach(({ key }, index) => {
      const here = index + 1 === position;
      items[index].classList.toggle('sv-l-keyed-item--shut', !here && !whole);
      for (const button of marks.get(key)) button.setAttribute('aria-pressed', String(here));
    });
    say(hint, position === 0 ? t('lesson.lines.hint') : '');
  }

  go(0);
  return { total: last, first: 0, go };
}

/** The list of explanations: each item begins with its key as code. */
function explanations(html) {
  const list = prose(html);
  return [...list.querySelectorAll('li')].map((item) => {
    const mark = item.querySelector('code');
    mark.remove();
    const rest = document.createDocumentFragment();
    rest.append(...item.childNodes);
    return { key: mark.textContent, html: rest };
  });
}
