/** A guess before the figure moves, then the guess beside the truth. */

import { h, newId } from '../dom.js';
import { block } from './prose.js';
import { flat, options } from './questions.js';

/**
 * events = {committed(), again()}. `group` is what a class changes about the guess, or null. Returns {element, open,
 * held, focus(), nudge(), skip(), settle()}; `open`: the answer has not been shown yet; `held`: the teacher shows it.
 */
export function makeAsk(step, { ctx, memory, group }, events) {
  const element = h('section', { class: 'sv-l-ask', 'aria-label': ctx.t('lesson.ask.title') });
  const view = {
    element,
    open: true,
    get held() {
      return group?.held === true;
    },
    focus() {},
    nudge() {},
    skip: () => showTruth(null),
    settle: () => showTruth(group.guess ?? null),
  };
  const { ask } = step;
  const { t } = ctx;

  function draw(...parts) {
    element.replaceChildren(...parts.filter(Boolean));
  }

  function showForm() {
    const field = ask.kind === 'choice' ? options(ask, { t }) : numberField(ask, ctx);
    const said = h('p', { class: 'sv-l-about', role: 'status' });
    const form = h(
      'form',
      { class: 'sv-l-form' },
      h('p', { class: 'sv-l-ask-title' }, t('lesson.ask.title')),
      field.element,
      h('div', { class: 'sv-l-tools' }, h('button', { class: 'sv-run', type: 'submit' }, t('lesson.ask.commit')), said),
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (field.value === null) {
        said.textContent = t(ask.kind === 'choice' ? 'lesson.ask.none' : 'lesson.ask.number');
        return;
      }
      memory.setGuess(step.id, field.value);
      group?.put(field.value);
      if (view.held) showWaiting(field.value);
      else {
        showTruth(field.value);
        events.committed();
      }
      element.querySelector('[tabindex="-1"]').focus();
    });
    draw(form, group?.element);
    Object.assign(view, {
      open: true,
      focus: field.focus,
      nudge: () => {
        said.textContent = t(view.held ? 'classroom.guess.first' : group?.leads ? 'classroom.guess.teacher' : 'lesson.ask.first');
        // What a teacher counts and shows with stands below the words, which make the box taller.
        for (const part of [said, group?.element]) part?.scrollIntoView({ block: 'nearest' });
      },
    });
  }

  /** The guess is counted; the answer comes when the teacher shows it to all. */
  function showWaiting(guess) {
    const again = h(
      'button',
      {
        class: 'sv-l-quiet',
        type: 'button',
        onClick: () => {
          showForm();
          view.focus();
        },
      },
      t('lesson.ask.again'),
    );
    const said = h('p', { role: 'status' }, t('classroom.guess.waits'));
    const given = h('div', { class: 'sv-l-truth', tabindex: '-1' }, h('dl', { class: 'sv-l-guess' }, line('guessed', name(guess))), said);
    draw(h('div', { class: 'sv-l-asked' }, flat(ask.html)), given, again, group?.element);
    Object.assign(view, { open: true, focus: () => given.focus(), nudge() {} });
  }

  function showTruth(guess) {
    const again = h(
      'button',
      {
        class: 'sv-l-quiet',
        type: 'button',
        onClick: () => {
          memory.setGuess(step.id, undefined);
          showForm();
          events.again();
          view.focus();
        },
      },
      t('lesson.ask.again'),
    );
    const truth = h('div', { class: 'sv-l-truth', tabindex: '-1' }, ...lines(guess), block(step.reveal));
    draw(h('div', { class: 'sv-l-asked' }, flat(ask.html)), group?.element, truth, again);
    view.open = false;
    group?.reveal();
  }

  function line(name, value) {
    const words = h('dd');
    words.append(value);
    return h('div', {}, h('dt', {}, t(`lesson.ask.${name}`)), words);
  }

  function lines(guess) {
    const same = guess !== null && agrees(guess, ask);
    const pair = h(
      'dl',
      { class: 'sv-l-guess' },
      guess === null ? null : line('guessed', name(guess)),
      line('truth', name(ask.answer)),
    );
    return same ? [pair, h('p', {}, t('lesson.ask.agree'))] : [pair];
  }

  function name(value) {
    if (ask.kind === 'choice') return flat(ask.options[value]);
    return ctx.number(value, 2, false);
  }

  // In a class, what was guessed at home or in an earlier one is no guess.
  const kept = group?.fresh ? group.guess : memory.guess(step.id);
  if (kept === undefined || (ask.kind === 'choice' && !(kept in ask.options))) showForm();
  else if (view.held) showWaiting(kept);
  else showTruth(kept);
  return view;
}

/** A guessed number agrees when it is as near as it could be written: a whole one when it rounds to the same. */
function agrees(guess, { kind, answer }) {
  if (kind === 'choice' || Number.isInteger(answer)) return guess === answer;
  return Math.abs(guess - answer) <= Math.abs(answer) * 0.05;
}

function numberField({ html }, { t }) {
  const id = newId('guess');
  const input = h('input', { class: 'sv-number-input', id, type: 'text', inputmode: 'decimal', autocomplete: 'off' });
  const label = h('label', { for: id });
  label.append(flat(html));
  return {
    element: h(
      'div',
      { class: 'sv-l-question' },
      label,
      input,
      h('span', { class: 'sv-hush' }, t('lesson.ask.number')),
    ),
    get value() {
      const text = input.value.trim().replace(',', '.');
      return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : null;
    },
    focus: () => input.focus(),
  };
}
