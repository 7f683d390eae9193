/** A slider with its letter, its name and its value. */

import { h, newId, say } from './dom.js';

/** `write(value)` hears the hand; draw(value) shows a value, without telling anybody. `show` words it. */
export function makeKnob({ name, sign, label, min, max, step, show, write }) {
  const id = newId('knob');
  const input = h('input', { type: 'range', id, min, max, step });
  const value = h('output', { for: id });
  input.addEventListener('input', () => write(Number(input.value)));
  const title = h('label', { for: id }, h('i', {}, sign), ' ', label);
  return {
    element: h('div', { class: 'sv-l-knob', 'data-part': name }, title, value, input),
    draw(now) {
      // The hand is on it: what it holds is not moved under it.
      if (Number(input.value) !== now) input.value = String(now);
      input.setAttribute('aria-valuetext', show(now));
      say(value, show(now));
    },
  };
}
