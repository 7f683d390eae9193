/** A figure on its place: mounted from recorded data, moved step by step, with a live twin where there is one. */

import { h } from '../dom.js';
import { Bundle } from '../trace.js';
import { FIGURES, filesOf, requestsOf } from './figures.js';
import { makeLive } from './live.js';
import { makeMeasure } from './measure.js';
import { tileOf } from './tiles.js';

/** Kinds that bring their own buttons to move with. */
const OWN_BUTTONS = new Set(['tiles', 'kv', 'drag', 'reroll', 'certainty', 'cost', 'experiment', 'race', 'here', 'compare', 'formula', 'served', 'runs']);

/**
 * scene = {host, lesson, step, texts: Map(path -> ndjson), ctx, memory, keep, asks, live, moved()}.
 * `asks`: the figure waits for a guess. Returns {element, at, total, go(position), find(ref, to), …}.
 */
export function makeStage(scene) {
  const { step, texts, ctx, asks } = scene;
  const { figure } = step;
  const root = h('div', { class: `sv-l-figure sv-l-figure--${figure.kind}` });
  if (!(figure.kind in FIGURES)) return empty(root);
  const paths = filesOf(figure);
  const element = h('section', { class: 'sv-l-stage-box', 'aria-label': ctx.t(`lesson.figure.${figure.kind}`) }, root);
  const lost = { cost: !figure.result, served: !figure.ndjson };
  if (paths.some((path) => !texts.has(path)) || lost[figure.kind]) {
    root.append(h('p', { class: 'sv-alert' }, ctx.t('lesson.figure.missing')));
    return empty(element);
  }
  const recorded = paths.map((path) => texts.get(path));
  let at = 0;
  let view = null;
  let buttons = null;
  const settle = (position) => {
    at = Math.min(position, view?.total ?? position);
    buttons?.draw();
    scene.moved?.();
  };
  const mount = (runs) => {
    view?.destroy?.();
    root.replaceChildren();
    view = FIGURES[figure.kind](root, { ...scene, figure, words: scene.host.words, texts: runs, moved: settle });
  };
  const go = (position) => {
    const next = Math.min(Math.max(position, 0), view.total);
    view.go(next);
    settle(next);
  };
  mount(recorded);
  if (view.total > 0 && scene.live && !OWN_BUTTONS.has(figure.kind))
    buttons = makeButtons(ctx, () => [at, view.total], go);
  if (buttons) element.append(buttons.element);
  const live = scene.live ? liveOf() : null;
  if (live) element.append(live.element);
  go(asks ? 0 : view.first);

  function liveOf() {
    if (figure.kind === 'cost') {
      const beside = { show: (result) => view.show(result), back: () => view.back() };
      return makeMeasure(beside, figure.result, scene);
    }
    const requests = requestsOf(figure);
    const bundles = recorded.map((text) => Bundle.of(text));
    return requests.length ? makeLive(twin(), requests, bundles, scene) : null;
  }

  /** The same figure for a live run: drawn as it comes where the figure can, otherwise drawn anew when it is over. */
  function twin() {
    let was = 0; // where the figure stood when the run began
    return {
      show(bundles) {
        was = at;
        view.show?.(bundles);
      },
      restore() {
        if (!view.show) return;
        view.back();
        go(was);
      },
      refresh: () => view.refresh?.(),
      finish(runs) {
        if (view.show) return true;
        if (runs.some((text) => lacks(text, figure))) return false;
        mount(runs);
        go(view.total);
        return true;
      },
      back() {
        if (view.show) view.back();
        else mount(recorded);
        go(view.total);
      },
    };
  }

  return {
    element,
    get at() {
      return at;
    },
    get total() {
      return view.total;
    },
    get first() {
      return asks ? 0 : view.first;
    },
    go,
    get keys() {
      return view.keys ?? {};
    },
    find(ref, to) {
      const found = view.find?.(ref, to);
      if (found?.length) return found;
      if (ref === 'tile') return [...root.querySelectorAll(`[data-at="${CSS.escape(tileOf(to))}"]`)];
      return ref === 'formula' ? [...root.querySelectorAll(`[data-part~="${CSS.escape(to)}"]`)] : [];
    },
    lock(locked) {
      root.inert = locked;
      element.classList.toggle('sv-l-stage-box--locked', locked);
      for (const each of [buttons?.element, live?.element]) if (each) each.hidden = locked;
    },
    take: (text) => live?.take(text),
    repaint: () => view.repaint?.(),
    destroy() {
      live?.stop();
      view.destroy?.();
    },
  };
}

/** A run that went another way may not have what the figure is about. */
function lacks(text, { round, node = 0, rounds }) {
  const [trace] = Bundle.of(text).traces;
  if (rounds && !trace.rounds[rounds[1]]) return true;
  return round !== undefined && !trace.rounds[round]?.nodes[node]?.p_top;
}

function empty(element) {
  return { element, at: 0, total: 0, first: 0, go() {}, keys: {}, find: () => [], lock() {}, take() {}, repaint() {}, destroy() {} };
}

/** Back and forth inside the figure. */
function makeButtons({ t }, place, go) {
  const said = h('span', { class: 'sv-l-place' });
  const button = (name, by) =>
    h(
      'button',
      {
        class: 'sv-l-quiet',
        type: 'button',
        'aria-label': t(`lesson.move.${name}`),
        onClick: () => go(place()[0] + by),
      },
      name === 'back' ? '‹' : '›',
    );
  const [back, next] = [button('back', -1), button('next', 1)];
  const whole = h(
    'button',
    { class: 'sv-l-quiet', type: 'button', onClick: () => go(place()[1]) },
    t('lesson.move.all'),
  );
  return {
    element: h('div', { class: 'sv-l-tools sv-l-moves' }, back, said, next, whole),
    draw() {
      const [at, total] = place();
      said.textContent = t('lesson.move.place', { at: at + 1, total: total + 1 });
      back.setAttribute('aria-disabled', String(at === 0));
      next.setAttribute('aria-disabled', String(at === total));
    },
  };
}
