/**
 * One round again, many times, from the laws stored in its trace. The drafts of a round hang from one another, and a
 * trace keeps the laws of the path that was taken; so lengths are rolled with the drafts as they stood and fresh draws
 * u, and the first token is rolled whole: a fresh draft from q, a fresh u, a fresh residual.
 */

import { h, say } from '../dom.js';
import { number, probability, quote } from '../tile.js';
import { Bundle } from '../trace.js';
import { generator, lawsOf, overlap, pick, residual } from './laws.js';

const STOPS = [1, 10, 100];

export function mountReroll(root, stage) {
  const { figure, ctx, texts, keep } = stage;
  const [trace] = Bundle.of(texts[0]).traces;
  const round = trace.rounds[figure.round];
  const chain = chainOf(round);
  const laws = lawsOf(round.nodes[chain[0]]);
  const stops = [0, ...STOPS.filter((stop) => stop < figure.n), figure.n];
  keep.seed ??= trace.meta.seed + 1;
  let rolled = 0;
  const said = h('p', { class: 'sv-l-caption', role: 'status' });
  const lengths = histogram(ctx.t('lesson.reroll.lengths'), lengthNames(chain, round, ctx), ctx);
  const firsts = histogram(
    ctx.t('lesson.reroll.first'),
    laws.ids.map((id) => quote(trace.text(id), ctx.t)),
    ctx,
  );
  const seed = h('span', { class: 'sv-l-seed' });
  const roll = (n) => {
    rolled = n;
    draw();
    stage.moved?.(stops.findIndex((stop) => stop >= n));
  };
  const buttons = stops
    .slice(1)
    .map((n) =>
      h('button', { class: 'sv-l-quiet', type: 'button', onClick: () => roll(n) }, ctx.t('lesson.reroll.times', { n })),
    );
  const fresh = h(
    'button',
    {
      class: 'sv-l-quiet',
      type: 'button',
      onClick: () => {
        keep.seed += 1;
        draw();
      },
    },
    ctx.t('lesson.reroll.fresh'),
  );
  root.append(
    h(
      'p',
      { class: 'sv-l-prompt' },
      h('b', {}, ctx.t('lesson.reroll.where', { round: figure.round })),
      ' ',
      chain.map((index) => quote(trace.text(round.nodes[index].id), ctx.t)).join(' '),
      ' ',
      ctx.badge(trace.origin, trace),
    ),
    h('div', { class: 'sv-l-tools' }, ...buttons, fresh, seed),
    h('div', { class: 'sv-l-laws' }, lengths.element, firsts.element),
    said,
    h('p', { class: 'sv-l-about' }, ctx.t('lesson.reroll.how'), ' ', laws.whole ? '' : ctx.t('lesson.reroll.partial')),
  );

  function draw() {
    const counts = rollAll(rolled, keep.seed, chain, round, laws);
    lengths.paint(counts.lengths, lengthLaw(chain, round), rolled);
    firsts.paint(
      counts.firsts,
      laws.p.map((value) => value / sum(laws.p)),
      rolled,
    );
    say(seed, ctx.t('lesson.reroll.seed', { seed: keep.seed }));
    const kept = counts.kept / Math.max(rolled, 1);
    say(
      said,
      rolled
        ? ctx.t('lesson.reroll.said', {
            n: rolled,
            kept: number(kept, ctx.lang(), 3),
            beta: probability(overlap(laws.p, laws.q), ctx.lang()),
          })
        : ctx.t('lesson.reroll.before'),
    );
  }

  draw();
  return {
    total: stops.length - 1,
    first: 0,
    go(position) {
      rolled = stops[position];
      draw();
    },
  };
}

const sum = (law) => law.reduce((total, value) => total + value, 0);

/** Indices of the judged drafts, first to last. Draws are known for these only. */
function chainOf(round) {
  return round.judged;
}

/** Names of the lengths; a chain that goes on beyond what was judged ends in "k or more". */
function lengthNames(chain, round, { t }) {
  return Array.from({ length: chain.length + 1 }, (_, count) =>
    t(isOpen(count, chain, round) ? 'lesson.reroll.more' : 'lesson.reroll.kept', { n: count }),
  );
}

function isOpen(count, chain, round) {
  return count === chain.length && round.nodes.length > chain.length;
}

/** The law of the accepted length, from the accept probabilities as stored. */
function lengthLaw(chain, round) {
  let reach = 1;
  const law = chain.map((index) => {
    const chance = reach * (1 - round.nodes[index].accept);
    reach *= round.nodes[index].accept;
    return chance;
  });
  return [...law, reach];
}

function rollAll(n, seed, chain, round, { p, q }) {
  const draw = generator(seed);
  const rest = residual(p, q);
  const counts = { lengths: Array(chain.length + 1).fill(0), firsts: Array(p.length).fill(0), kept: 0 };
  for (let index = 0; index < n; index += 1) {
    let length = 0;
    while (length < chain.length && draw() < round.nodes[chain[length]].accept) length += 1;
    counts.lengths[length] += 1;
    const drafted = pick(q, draw());
    const accepted = draw() < Math.min(1, p[drafted] / q[drafted]);
    counts.kept += Number(accepted);
    counts.firsts[accepted || rest === null ? drafted : pick(rest, draw())] += 1;
  }
  return counts;
}

/** Bars of observed shares with a mark at the expected one. */
function histogram(title, names, ctx) {
  const rows = names.map((name) => {
    const fill = h('i');
    const mark = h('b');
    const value = h('span', { class: 'sv-l-law-value' });
    const element = h(
      'li',
      {},
      h('span', { class: 'sv-l-law-name' }, name),
      h('span', { class: 'sv-l-across', 'aria-hidden': 'true' }, fill, mark),
      value,
    );
    return { element, fill, mark, value };
  });
  const element = h(
    'section',
    {},
    h('h2', {}, title),
    h('ol', { class: 'sv-l-across-list' }, ...rows.map((row) => row.element)),
  );
  return {
    element,
    paint(counts, law, n) {
      rows.forEach((row, index) => {
        const share = n ? counts[index] / n : 0;
        row.fill.style.width = `${share * 100}%`;
        row.mark.style.left = `${law[index] * 100}%`;
        row.value.textContent = ctx.t('lesson.reroll.row', {
          count: counts[index],
          expected: ctx.number(n * law[index], n < 100 ? 1 : 0),
        });
      });
    },
  };
}
