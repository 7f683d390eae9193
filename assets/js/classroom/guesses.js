/** What a class guessed at a step, as bars with their counts: for the teacher while it comes in, for all when it is shown. */

import { h, say } from '../dom.js';
import { flat } from '../lesson/questions.js';

const MOST_BARS = 8;

/** actions = {show()}: the teacher shows the answer. Returns {element, draw({tally, members, shown})}; members: null for a student. */
export function makeGuesses(step, { t, number }, actions) {
  const { ask } = step;
  const count = h('span', { class: 'sv-class-count' });
  const bars = h('ol', { class: 'sv-l-across-list' });
  const others = h('p', { class: 'sv-l-about' });
  const look = h('details', { class: 'sv-class-look' }, h('summary', {}, t('classroom.guess.look')), bars, others);
  const show = h(
    'button',
    { class: 'sv-l-quiet', type: 'button', onClick: () => actions.show() },
    t('classroom.guess.show'),
  );
  const element = h(
    'section',
    { class: 'sv-class-guesses', 'aria-label': t('classroom.guess.title'), hidden: true },
    h('div', { class: 'sv-l-tools' }, count, show),
    look,
  );
  let drawn = '';
  // The bars open downwards, and a projected step has its question at the lower edge already.
  look.addEventListener('toggle', () => look.open && !look.firstChild.hidden && look.scrollIntoView({ block: 'nearest' }));

  function draw({ tally, members, shown }) {
    const state = JSON.stringify([tally, members, shown]);
    if (state === drawn) return;
    const turned = !drawn || JSON.parse(drawn)[2] !== shown;
    drawn = state;
    const total = tally.reduce((sum, [, times]) => sum + times, 0);
    element.hidden = members === null && !shown;
    show.hidden = members === null || shown;
    say(count, said(total, members, shown));
    // The screen may be projected: until the answer is shown, the teacher opens the bars on purpose.
    if (turned) look.open = shown;
    look.firstChild.hidden = shown;
    const came = look.hidden && total > 0;
    look.hidden = total === 0;
    // Who has scrolled away is not brought back.
    if (came && element.getBoundingClientRect().top < innerHeight) look.scrollIntoView({ block: 'nearest' });
    const { rows, rest } = ask.kind === 'choice' ? optionRows(tally) : numberRows(tally);
    const most = Math.max(1, ...rows.map((row) => row.times));
    bars.replaceChildren(...rows.map((row) => bar(row, most, shown)));
    say(others, rest ? t('classroom.guess.others', { n: rest }) : '');
  }

  function said(total, members, shown) {
    if (members !== null && !shown) return t('classroom.guess.count', { n: total, members });
    return t(total ? 'classroom.guess.total' : 'classroom.guess.none', { n: total });
  }

  function optionRows(tally) {
    const times = new Map(tally);
    return { rows: ask.options.map((option, value) => ({ value, words: flat(option), times: times.get(value) ?? 0 })) };
  }

  /** The most frequent numbers in their order; what else was guessed is counted together. */
  function numberRows(tally) {
    const kept = [...tally]
      .sort((one, other) => other[1] - one[1])
      .slice(0, MOST_BARS)
      .sort((one, other) => one[0] - other[0]);
    const rest = tally.length > MOST_BARS ? sum(tally) - sum(kept) : 0;
    return { rows: kept.map(([value, times]) => ({ value, words: number(value, 2, false), times })), rest };
  }

  function bar({ value, words, times }, most, shown) {
    const right = shown && value === ask.answer;
    const fill = h('i');
    fill.style.width = `${(times / most) * 100}%`;
    const name = h('span', { class: 'sv-l-law-name' });
    if (right) name.append(h('span', { class: 'sv-l-mark--right', 'aria-label': t('lesson.quiz.right'), role: 'img' }, '✓ '));
    name.append(words);
    const across = h('span', { class: `sv-l-across${right ? ' sv-l-across--emitted' : ''}`, 'aria-hidden': 'true' }, fill);
    return h('li', {}, name, across, h('span', { class: 'sv-l-law-value' }, String(times)));
  }

  return { element, draw };
}

function sum(tally) {
  return tally.reduce((total, [, times]) => total + times, 0);
}
