/** p and q on a few tokens, pulled by hand: β, distance, residual and what comes out, exact at every moment. */

import { h, say } from '../dom.js';
import { distance, emitted, emittedByWrongRule, overlap, residual, withValue } from './laws.js';

const STEP = 0.01;
const LEAP = 0.1;
const NUMBERS = ['beta', 'tv', 'error'];
const LAWS = ['residual', 'emitted'];

export function mountDrag(root, stage) {
  const { figure, ctx, keep, moved } = stage;
  const total = figure.wrong ? 1 : 0;
  keep.p ??= normal(figure.p);
  keep.q ??= normal(figure.q);
  keep.wrong ??= false;
  const columns = figure.labels.map((label, index) =>
    makeColumn(label, index, ctx, (law, value) => set(law, index, value)),
  );
  const field = h(
    'div',
    { class: 'sv-l-drag', role: 'group', 'aria-label': ctx.t('lesson.drag.title') },
    ...columns.map((column) => column.element),
  );
  const numbers = Object.fromEntries(NUMBERS.map((name) => [name, h('output')]));
  const list = h(
    'dl',
    { class: 'sv-l-numbers' },
    ...NUMBERS.map((name) =>
      h('div', { 'data-part': name }, h('dt', {}, ctx.t(`lesson.drag.${name}`)), h('dd', {}, numbers[name])),
    ),
  );
  const laws = Object.fromEntries(LAWS.map((name) => [name, makeLaw(name, figure.labels, ctx)]));
  const verdict = h('p', { class: 'sv-l-caption', role: 'status' });
  const wrong = h('input', { type: 'checkbox', role: 'switch', onChange: () => turn(wrong.checked) });
  const reset = h(
    'button',
    {
      class: 'sv-l-quiet',
      type: 'button',
      onClick: () => {
        Object.assign(keep, { p: normal(figure.p), q: normal(figure.q) });
        turn(false);
      },
    },
    ctx.t('lesson.drag.reset'),
  );
  root.append(
    h('p', { class: 'sv-l-about', 'data-screen': 'only' }, ctx.t('lesson.drag.how')),
    field,
    key(ctx),
    list,
    h('div', { class: 'sv-l-laws' }, laws.residual.element, laws.emitted.element),
    h('div', { class: 'sv-l-tools' }, h('label', { class: 'sv-l-switch' }, wrong, ctx.t('lesson.drag.wrong')), reset),
    verdict,
  );

  function set(law, index, value) {
    change({ [law]: withValue(keep[law], index, Math.round(value * 1000) / 1000) });
  }

  function change(patch) {
    Object.assign(keep, patch);
    draw();
  }

  function turn(on) {
    change({ wrong: on });
    if (total) moved(on ? total : 0);
  }

  function draw() {
    const { p, q } = keep;
    const out = keep.wrong ? emittedByWrongRule(p, q) : emitted(p, q);
    columns.forEach((column) => column.paint(p, q));
    const error = distance(out, p);
    const shown = { beta: overlap(p, q), tv: distance(p, q), error };
    for (const name of NUMBERS) say(numbers[name], ctx.number(Math.abs(shown[name]) < 5e-4 ? 0 : shown[name], 3));
    laws.residual.paint(residual(p, q), null);
    laws.emitted.paint(out, p);
    wrong.checked = keep.wrong;
    say(
      verdict,
      ctx.t(keep.wrong ? (error < 5e-4 ? 'lesson.drag.say.lucky' : 'lesson.drag.say.wrong') : 'lesson.drag.say.right', {
        error: ctx.number(error, 3),
      }),
    );
  }

  draw();
  return {
    total,
    first: 0,
    go(position) {
      if (total) change({ wrong: position === total });
    },
  };
}

function normal(law) {
  const sum = law.reduce((total, value) => total + value, 0);
  return law.map((value) => value / sum);
}

function makeColumn(label, index, ctx, set) {
  const bars = Object.fromEntries(['p', 'q'].map((law) => [law, makeBar(law, label, ctx, (value) => set(law, value))]));
  const element = h(
    'div',
    { class: 'sv-l-drag-column' },
    h('div', { class: 'sv-l-drag-pair' }, bars.p.element, bars.q.element),
    h('span', { class: 'sv-l-drag-label' }, label),
  );
  return {
    element,
    paint(p, q) {
      bars.p.paint(p[index]);
      bars.q.paint(q[index]);
    },
  };
}

/** A bar that follows mouse, finger and arrow keys. */
function makeBar(law, label, ctx, set) {
  const fill = h('span', { class: `sv-l-drag-fill sv-l-drag-fill--${law}` });
  const value = h('span', { class: 'sv-l-drag-value', 'aria-hidden': 'true' });
  const element = h(
    'div',
    {
      class: 'sv-l-drag-bar',
      role: 'slider',
      tabindex: '0',
      'data-part': law,
      'aria-orientation': 'vertical',
      'aria-valuemin': '0',
      'aria-valuemax': '1',
      'aria-label': ctx.t(`lesson.drag.bar.${law}`, { token: label }),
    },
    fill,
    value,
  );
  let now = 0;
  const follow = (event) => {
    const box = element.getBoundingClientRect();
    set((box.bottom - event.clientY) / box.height);
  };
  element.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    element.focus();
    event.preventDefault();
    follow(event);
  });
  element.addEventListener('pointermove', (event) => element.hasPointerCapture(event.pointerId) && follow(event));
  element.addEventListener('keydown', (event) => {
    const keys = {
      ArrowUp: now + STEP,
      ArrowRight: now + STEP,
      ArrowDown: now - STEP,
      ArrowLeft: now - STEP,
      PageUp: now + LEAP,
      PageDown: now - LEAP,
      Home: 0,
      End: 1,
    };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    set(keys[event.key]);
  });
  return {
    element,
    paint(next) {
      now = next;
      fill.style.height = `${next * 100}%`;
      value.textContent = ctx.number(next, 2);
      value.style.bottom = `min(${next * 100}%, calc(100% - 1.2em))`;
      element.setAttribute('aria-valuenow', next.toFixed(2));
      element.setAttribute('aria-valuetext', ctx.number(next, 2));
    },
  };
}

/** A law as bars across, with a mark where it should be. */
function makeLaw(name, labels, ctx) {
  const note = h('p', { class: 'sv-l-about' });
  const rows = labels.map((label) => {
    const fill = h('i');
    const mark = h('b');
    const value = h('span', { class: 'sv-l-law-value' });
    const element = h(
      'li',
      {},
      h('span', { class: 'sv-l-law-name' }, label),
      h('span', { class: `sv-l-across sv-l-across--${name}`, 'aria-hidden': 'true' }, fill, mark),
      value,
    );
    return { element, fill, mark, value };
  });
  const list = h('ol', { class: 'sv-l-across-list' }, ...rows.map((row) => row.element));
  const element = h('section', { 'data-part': name }, h('h2', {}, ctx.t(`lesson.drag.${name}`)), list, note);
  return {
    element,
    paint(law, goal) {
      list.hidden = law === null;
      say(note, law === null ? ctx.t('lesson.drag.none') : goal ? ctx.t('lesson.drag.mark') : '');
      rows.forEach((row, index) => {
        row.fill.style.width = `${(law?.[index] ?? 0) * 100}%`;
        row.mark.hidden = goal === null;
        row.mark.style.left = `${(goal?.[index] ?? 0) * 100}%`;
        row.value.textContent = law === null ? '' : ctx.number(law[index], 3);
        row.element.classList.toggle('sv-l-across-off', goal !== null && Math.abs(law[index] - goal[index]) > 5e-4);
      });
    },
  };
}

function key({ t }) {
  return h(
    'ul',
    { class: 'sv-l-keys' },
    ...['p', 'q'].map((name) =>
      h(
        'li',
        {},
        h('span', { class: `sv-l-key sv-l-key--${name}`, 'aria-hidden': 'true' }),
        t(`lesson.law.key.${name}`),
      ),
    ),
  );
}
