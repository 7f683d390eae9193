/** Questions that open one by one, as under the Live page's board; what is open stays open when they are built again. */

import { h } from '../dom.js';

/** `make(name, body)` fills a body when its question is first opened. `opened` is a Set that is kept. */
export function makeAsks(names, { words, opened, make, drawn }) {
  const made = new Set();
  const list = h('div', { class: 'sv-asks' });
  for (const name of names) {
    const body = h('div', { class: 'sv-ask-body' });
    const element = h(
      'details',
      { class: 'sv-ask', id: `sv-lab-${name}`, open: opened.has(name) },
      h('summary', {}, words.t(`lab.ask.${name}`)),
      body,
    );
    const open = () => {
      if (!made.has(name)) {
        made.add(name);
        body.append(h('p', { class: 'sv-ask-text' }, words.t(`lab.ask.${name}.text`)));
        make(name, body);
      }
      drawn?.(name);
    };
    element.addEventListener('toggle', () => {
      if (element.open) opened.add(name);
      else opened.delete(name);
      if (element.open) open();
    });
    list.append(element);
  }
  return list;
}
