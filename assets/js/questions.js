/** The questions under the board. Each opens by itself, and draws its figures only while it is open. */

import { mountAnatomy } from './anatomy.js';
import { mountCharts } from './charts.js';
import { h, say } from './dom.js';
import { hasDrafting, mountDrafting } from './drafting.js';
import { mountKv } from './kv.js';
import { linkToLab } from './lab.js';
import { mountMemory, mountNumbers } from './numbers.js';
import { mountRace } from './race.js';

/** In reading order. `charts` are the keys a question answers with; a chart no question names stands with the numbers. */
const QUESTIONS = Object.freeze([
  { name: 'red', charts: [] },
  { name: 'drafted', charts: [] },
  { name: 'anatomy', charts: [] },
  { name: 'time', charts: ['time'] },
  { name: 'what_if', charts: ['what_if', 'alpha'] },
  { name: 'faster', charts: [] },
  { name: 'kv', charts: ['kv'] },
  { name: 'memory', charts: [] },
  { name: 'numbers', charts: null },
]);
const CLAIMED = new Set(QUESTIONS.flatMap((question) => question.charts ?? []));

/** These end on the formula, with the run's own numbers. */
const LEAD_TO_LAB = new Set(['what_if', 'faster']);

const chartsOf = (question, charts) =>
  charts.filter(({ key }) => (question.charts ? question.charts.includes(key) : !CLAIMED.has(key)));

/** host adds {ctx} to what a place gets: the board's words. */
export function mountQuestions(root, { boot, words, state, ctx, toLab }) {
  const list = h('div', { class: 'sv-asks' });
  const shown = { bundle: null, trace: null, round: null, view: null };
  const panels = QUESTIONS.map((question) => {
    const panel = makePanel(question, { boot, words, state, ctx, toLab });
    panel.element.addEventListener('toggle', () => panel.element.open && panel.fill(shown));
    list.append(panel.element);
    return panel;
  });
  root.append(list);

  const fill = (part) => {
    for (const panel of panels) {
      panel.offer(shown);
      if (panel.element.open) panel.fill(shown, part);
    }
  };
  return {
    /** A bundle and the trace looked at; `rounds` have come, or another trace. */
    setBundle(bundle, trace) {
      Object.assign(shown, { bundle, trace, round: null });
      fill('trace');
    },
    /** What the server computed from the finished traces; null while there is nothing yet. */
    setView(view) {
      shown.view = view;
      fill('view');
    },
    /** The board stands at `round` of `trace`. */
    follow(trace, round) {
      Object.assign(shown, { trace, round });
      fill('place');
    },
    setWords() {
      for (const panel of panels) panel.setWords();
      fill();
    },
  };
}

function makePanel(question, { boot, words, state, ctx, toLab }) {
  const { name } = question;
  const body = h('div', { class: 'sv-ask-body' });
  const element = h(
    'details',
    { class: 'sv-ask', 'data-hide': name },
    words.bind(h('summary'), `question.${name}`),
    body,
  );
  body.append(words.bind(h('p', { class: 'sv-ask-text' }), `question.${name}.text`));
  const parts = extras(name, body, { boot, words, state, ctx });
  const none = h('p', { class: 'sv-none' });
  body.append(none);
  const charts = question.charts?.length === 0 ? null : mountCharts(body, { boot, words, heading: `question.${name}` });
  if (LEAD_TO_LAB.has(name)) body.append(h('p', { class: 'sv-ask-more' }, linkToLab({ words, toLab })));

  const fill = (shown, part = null) => {
    for (const each of parts) if (part === null || each.follows.includes(part)) each.show(shown);
    if (part !== null && part !== 'view') return;
    const wanted = chartsOf(question, shown.view?.charts ?? []);
    charts?.show(wanted);
    const empty = !shown.view && (charts !== null || parts.some((each) => each.waits));
    say(none, empty ? words.t('question.none') : '');
    none.hidden = !empty;
  };
  // A question that this run has no answer to is not asked.
  const offer = ({ trace }) => element.classList.toggle('sv-ask--absent', name === 'drafted' && !hasDrafting(trace));
  return { element, fill, offer, setWords: () => parts.forEach((each) => each.setWords?.()) };
}

/** What a question shows besides charts: {follows: what makes it change, waits: for the view, show(shown), setWords}. */
function extras(name, body, { boot, words, state, ctx }) {
  const box = h('div');
  if (!['anatomy', 'drafted', 'faster', 'kv', 'memory', 'numbers'].includes(name)) return [];
  body.append(box);
  if (name === 'anatomy') {
    const { show } = mountAnatomy(box, { boot, words, state });
    return [{ follows: ['trace', 'place', 'view'], show }];
  }
  if (name === 'drafted') {
    const { show } = mountDrafting(box, { boot, words, ctx });
    return [{ follows: ['trace', 'place'], show: ({ trace, round }) => show(trace, round) }];
  }
  if (name === 'faster') {
    const race = mountRace(box, ctx);
    const why = h('ul', { class: 'sv-why' });
    body.append(why);
    const reasons = ({ view }) =>
      why.replaceChildren(...(view?.verdict?.why ?? []).map(({ key, args }) => h('li', {}, words.t(key, args))));
    return [
      { follows: ['trace'], show: ({ bundle }) => race.show(bundle), setWords: race.setWords },
      { follows: ['view'], waits: true, show: reasons },
    ];
  }
  if (name === 'kv') {
    const kv = mountKv(box, ctx);
    return [{ follows: ['trace', 'place'], show: ({ trace, round }) => kv.show(trace, round), setWords: kv.setWords }];
  }
  const table = name === 'memory' ? mountMemory(box, { words }) : mountNumbers(box, { words });
  return [
    {
      follows: ['view'],
      waits: true,
      show({ view }) {
        box.hidden = !view;
        if (view) table.show(view[name] ?? []);
      },
    },
  ];
}
