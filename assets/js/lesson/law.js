/** The proof that nothing is lost, played on real numbers: min(p, q) + (p − q)₊ = p, one bar after another. */

import { h, say } from '../dom.js';
import { drawToken, number, probability, quote } from '../tile.js';
import { Bundle } from '../trace.js';
import { lawsOf, overlap, residual } from './laws.js';

export function mountLaw(root, stage) {
  const { figure, ctx, texts } = stage;
  const [trace] = Bundle.of(texts[0]).traces;
  const node = trace.rounds[figure.round].nodes[figure.node];
  const laws = lawsOf(node);
  const proof = proofOf(laws);
  const caption = h('p', { class: 'sv-l-caption', role: 'status' });
  const rows = laws.ids.map((id, index) => drawRow(trace, id, laws, index, ctx));
  const table = h(
    'div',
    { class: 'sv-l-law', role: 'table', 'aria-label': ctx.t('lesson.law.title') },
    head(ctx),
    ...rows.map((row) => row.element),
  );
  root.append(
    h(
      'p',
      { class: 'sv-l-prompt' },
      h('b', {}, ctx.t('lesson.law.where', { round: figure.round, place: figure.node + 1 })),
      ' ',
      drawToken(trace.text(node.id)),
      ' ',
      ctx.badge(trace.origin, trace),
    ),
    h(
      'p',
      { class: 'sv-l-identity', 'aria-label': ctx.t('lesson.law.identity') },
      part('min', 'min(p, q)'),
      ' + ',
      part('residual', '(p − q)₊'),
      ' = ',
      part('p', 'p'),
    ),
    caption,
    table,
    key(ctx),
    laws.whole ? '' : h('p', { class: 'sv-l-about' }, ctx.t('lesson.law.partial')),
  );

  const go = (position) => {
    const step = proof.steps[position];
    rows.forEach((row, index) =>
      row.paint({
        kept: position >= proof.keptAt(index),
        filled: position >= proof.filledAt(index),
        now: step.index === index,
        done: step.kind === 'sum',
      }),
    );
    say(caption, sentence(step, trace, laws, proof, ctx));
  };
  go(0);
  return { total: proof.steps.length - 1, first: 0, go };
}

/** The order in which the bars are drawn: both laws, each kept part, their sum β, each refilled part, the end. */
function proofOf({ p, q }) {
  const kept = p.map((value, index) => Math.min(value, q[index]));
  const gains = p.map((value, index) => Math.max(value - q[index], 0));
  const keeps = kept.flatMap((value, index) => (value > 0 ? [index] : []));
  const fills = gains.flatMap((value, index) => (value > 0 ? [index] : []));
  const steps = [
    { kind: 'laws' },
    ...keeps.map((index) => ({ kind: 'keep', index })),
    { kind: 'beta' },
    ...fills.map((index) => ({ kind: 'fill', index })),
    { kind: 'sum' },
  ];
  const when = (kind, index, otherwise) => {
    const at = steps.findIndex((step) => step.kind === kind && step.index === index);
    return at < 0 ? steps.findIndex((step) => step.kind === otherwise) : at;
  };
  return {
    steps,
    beta: overlap(p, q),
    residual: residual(p, q),
    kept,
    gains,
    keptAt: (index) => when('keep', index, 'beta'),
    filledAt: (index) => when('fill', index, 'sum'),
  };
}

function sentence(step, trace, { ids, p, q }, proof, ctx) {
  const { t, lang } = ctx;
  const show = (value) => probability(value, lang());
  if (step.index === undefined) {
    return t(`lesson.law.say.${step.kind}`, { beta: show(proof.beta), rest: show(1 - proof.beta) });
  }
  const { index } = step;
  const args = { token: quote(trace.text(ids[index]), t), p: show(p[index]), q: show(q[index]) };
  if (step.kind === 'keep') {
    return t(p[index] >= q[index] ? 'lesson.law.say.keep.all' : 'lesson.law.say.keep.some', {
      ...args,
      accept: show(Math.min(1, p[index] / q[index])),
      kept: show(proof.kept[index]),
    });
  }
  return t('lesson.law.say.fill', {
    ...args,
    rest: show(1 - proof.beta),
    residual: show(proof.residual[index]),
    gain: show(proof.gains[index]),
  });
}

function part(name, text) {
  return h('span', { 'data-part': name, class: `sv-l-part sv-l-part--${name}` }, text);
}

const COLUMNS = ['p', 'q', 'min', 'gain', 'sum'];

function head({ t }) {
  const cells = ['token', ...COLUMNS].map((name) =>
    h('span', { role: 'columnheader' }, t(`lesson.law.column.${name}`)),
  );
  return h('div', { class: 'sv-l-law-row sv-l-law-head', role: 'row' }, ...cells);
}

function drawRow(trace, id, { p, q }, index, ctx) {
  const largest = Math.max(...p, ...q);
  const wide = (value) => `${(value / largest) * 100}%`;
  const kept = Math.min(p[index], q[index]);
  const gain = Math.max(p[index] - q[index], 0);
  const name = h('span', { class: 'sv-l-law-name', role: 'rowheader' });
  name.append(drawToken(trace.text(id)));
  const cells = Object.fromEntries(
    COLUMNS.map((column) => [column, h('span', { role: 'cell', class: 'sv-l-law-value' })]),
  );
  const outline = h('span', {
    class: p[index] / largest > 0.004 ? 'sv-l-law-outline' : 'sv-l-law-outline sv-l-law-outline--none',
  });
  outline.style.width = wide(p[index]);
  const green = h('span', { class: 'sv-l-law-kept' });
  const blue = h('span', { class: 'sv-l-law-gain' });
  const below = h('span', { class: 'sv-l-law-q' });
  below.style.width = wide(q[index]);
  const bars = h(
    'span',
    { class: 'sv-l-law-bars', 'aria-hidden': 'true' },
    h('span', { class: 'sv-l-law-track' }, outline, h('span', { class: 'sv-l-law-stack' }, green, blue)),
    h('span', { class: 'sv-l-law-track sv-l-law-track--q' }, below),
  );
  const element = h(
    'div',
    { class: 'sv-l-law-row', role: 'row' },
    name,
    ...COLUMNS.map((column) => cells[column]),
    bars,
  );
  const show = (value) => (value === 0 ? '0' : number(value, ctx.lang(), 3));
  cells.p.textContent = show(p[index]);
  cells.q.textContent = show(q[index]);
  return {
    element,
    paint({ kept: isKept, filled, now, done }) {
      green.style.width = isKept ? wide(kept) : '0';
      blue.style.width = filled ? wide(gain) : '0';
      cells.min.textContent = isKept ? show(kept) : '';
      cells.gain.textContent = filled ? show(gain) : '';
      cells.sum.textContent = filled ? `${show(kept + gain)} ✓` : '';
      element.classList.toggle('sv-l-law-row--now', now);
      element.classList.toggle('sv-l-law-row--done', done);
    },
  };
}

function key({ t }) {
  const names = ['p', 'q', 'kept', 'gain'];
  return h(
    'ul',
    { class: 'sv-l-keys' },
    ...names.map((name) =>
      h(
        'li',
        {},
        h('span', { class: `sv-l-key sv-l-key--${name}`, 'aria-hidden': 'true' }),
        t(`lesson.law.key.${name}`),
      ),
    ),
  );
}
