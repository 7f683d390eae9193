/** Rounds of a run on the board, stepped through from where the lesson wants to begin. */

import { mountBoard } from '../board.js';
import { h } from '../dom.js';
import { stepsOf } from '../steps.js';
import { drawRunning } from '../tile.js';
import { Bundle } from '../trace.js';
import { cut } from './recording.js';

/** Characters of a prompt that stand in full. */
const LONG = 300;

export function mountTiles(root, stage) {
  const { figure, ctx, texts, asks } = stage;
  const [from, to] = figure.rounds ?? [0, null];
  const bundle = Bundle.of(cut(texts[0], to));
  const [trace] = bundle.traces;
  const box = h('div');
  root.append(promptOf(trace, ctx), box);
  let at = 0;
  let total = 0;
  let recorded = true;
  // A guess needs the drafts in sight, and only them.
  const begin = startOf(trace, from) + (asks && trace.rounds[from]?.nodes.length ? 1 : 0);
  const board = mountBoard(box, {
    ...ctx,
    badge: (origin) => ctx.badge(origin, trace),
    moved(place) {
      at = place.position;
      total = place.total;
      if (recorded) stage.moved?.(Math.max(at - begin, 0));
    },
  });
  board.setBundle(bundle);
  const whole = total;
  return {
    total: whole - begin,
    first: figure.start === 'hidden' ? 0 : whole - begin,
    go: (position) => board.step(begin + position - at),
    find: (ref, target) =>
      ref === 'tile' ? [...box.querySelectorAll(`[data-at="${CSS.escape(tileOf(target))}"]`)] : [],
    keys: { r: board.reveal, p: board.play },
    show(bundles) {
      recorded = false;
      board.setBundle(bundles[0], { live: true });
    },
    refresh: board.refresh,
    back() {
      board.setBundle(bundle);
      recorded = true;
    },
    destroy: board.destroy,
  };
}

/** Lessons name the target's own token of a round "emitted", the board "own". */
export function tileOf(target) {
  return target.replace(/\.emitted$/, '.own');
}

/** The text the run began from. */
export function promptOf(trace, ctx, { badged = false } = {}) {
  const text = h('span', { class: 'sv-l-given' });
  const given = trace.meta.prompt_text ?? '';
  drawRunning(text, given);
  const long = given.length > LONG;
  return h(
    'p',
    { class: `sv-l-prompt${long ? ' sv-l-prompt--long' : ''}`, tabindex: long ? '0' : null },
    h('b', {}, ctx.t('lesson.prompt')),
    ' ',
    text,
    ' ',
    badged ? ctx.badge(trace.origin, trace) : '',
  );
}

function startOf(trace, from) {
  return trace.rounds.slice(0, from).reduce((sum, round) => sum + stepsOf(round).length, 0);
}
