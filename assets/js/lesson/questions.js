/** Questions with options: one form for the survey, the check questions and a single guess. */

import { h, newId } from '../dom.js';
import { block, prose } from './prose.js';

/** A group of options: {element, value}. `value` is the index of the chosen one, null when none is. */
export function options({ html, options: choices, number }, { chosen = null, disabled = false, t }) {
  const name = newId('option');
  const legend = h('legend', {});
  if (number) legend.append(h('span', { class: 'sv-l-question-number' }, t('lesson.question.number', { number })), ' ');
  legend.append(flat(html));
  const inputs = choices.map((_, index) => {
    const input = h('input', { type: 'radio', name, value: index, disabled });
    input.checked = index === chosen;
    return input;
  });
  const rows = choices.map((choice, index) => {
    const words = h('span');
    words.append(flat(choice));
    return h('label', { class: 'sv-l-option' }, inputs[index], words);
  });
  const element = h('fieldset', { class: 'sv-l-question' }, legend, ...rows);
  return {
    element,
    rows,
    get value() {
      const at = inputs.findIndex((input) => input.checked);
      return at < 0 ? null : at;
    },
    focus: () => (inputs.find((input) => input.checked) ?? inputs[0])?.focus(),
  };
}

/** Words for a place that allows no paragraphs: several paragraphs become lines. */
export function flat(html) {
  const fragment = document.createDocumentFragment();
  for (const node of [...prose(html).childNodes]) {
    if (node.nodeName !== 'P') fragment.append(node);
    else fragment.append(...(fragment.textContent.trim() ? [h('br')] : []), ...node.childNodes);
  }
  return fragment;
}

/** The survey: before the lesson it only listens, after it the learner sees both. */
export function mountSurvey(root, stage) {
  const { figure, lesson, ctx, memory } = stage;
  const { t } = ctx;
  const unknown = `<p>${t('lesson.survey.unknown')}</p>`;
  const draw = (focus = false) => {
    const given = memory.answers(figure.phase);
    root.replaceChildren(given ? handedIn(given) : form());
    if (focus) root.querySelector('[tabindex="-1"]')?.focus();
    stage.refreshed?.();
  };

  function form() {
    const ticked = memory.ticked(figure.phase);
    const groups = lesson.survey.map((question, index) => {
      const kept = ticked?.[question.id];
      const chosen = kept === -1 ? question.options.length : kept;
      return options({ ...question, options: [...question.options, unknown], number: index + 1 }, { chosen, t });
    });
    const valueOf = ({ value }, index) => (value === lesson.survey[index].options.length ? -1 : value);
    const send = h('button', { class: 'sv-run', type: 'submit' }, t('lesson.survey.send'));
    const element = h(
      'form',
      { class: 'sv-l-form' },
      h('p', { class: 'sv-l-about' }, t(`lesson.survey.${figure.phase}`)),
      ...groups.map((group) => group.element),
      send,
    );
    // The class may move on before the button is pressed.
    element.addEventListener('change', () => {
      const values = lesson.survey.map((question, index) => [question.id, valueOf(groups[index], index)]);
      memory.setTicked(figure.phase, Object.fromEntries(values.filter(([, value]) => value !== null)));
    });
    element.addEventListener('submit', (event) => {
      event.preventDefault();
      const values = lesson.survey.map((question, index) => [question.id, valueOf(groups[index], index) ?? -1]);
      memory.setAnswers(figure.phase, Object.fromEntries(values));
      memory.setTicked(figure.phase, undefined);
      draw(true);
    });
    return element;
  }

  function handedIn(given) {
    const again = h(
      'button',
      {
        class: 'sv-l-quiet',
        type: 'button',
        onClick: () => {
          memory.setAnswers(figure.phase, undefined);
          draw();
        },
      },
      t('lesson.survey.again'),
    );
    if (figure.phase === 'before')
      return h('div', {}, h('p', { class: 'sv-l-caption', tabindex: '-1' }, t('lesson.survey.thanks')), again);
    return h('div', {}, outcome(memory.answers('before') ?? memory.ticked('before'), given), again);
  }

  function outcome(before, after) {
    const right = (answers) => lesson.survey.filter((question) => answers?.[question.id] === question.answer).length;
    const of = lesson.survey.length;
    const answered = lesson.survey.filter(({ id }) => before?.[id] !== undefined).length;
    const name = !before ? 'only' : answered < of ? 'part' : 'both';
    const said = t(`lesson.survey.${name}`, { answered, before: right(before), after: right(after), of });
    const names = before ? ['question', 'before', 'after', 'right'] : ['question', 'after', 'right'];
    const cells = (question) => ({
      before: () => answer(question, before?.[question.id]),
      after: () => answer(question, after[question.id]),
      right: () => choice(question, question.answer),
    });
    const row = (question) => {
      const head = h('th', { scope: 'row' });
      head.append(flat(question.html));
      return h(
        'tr',
        {},
        head,
        ...names
          .slice(1)
          .map((name) => h('td', { 'data-name': t(`lesson.survey.column.${name}`) }, cells(question)[name]())),
      );
    };
    const table = h(
      'table',
      { class: 'sv-l-outcome' },
      h('thead', {}, h('tr', {}, ...names.map((name) => h('th', { scope: 'col' }, t(`lesson.survey.column.${name}`))))),
      h('tbody', {}, ...lesson.survey.map(row)),
    );
    return h('div', {}, h('p', { class: 'sv-l-caption', tabindex: '-1' }, said), table);
  }

  function answer(question, index) {
    const right = index === question.answer;
    const known = index !== undefined && index >= 0;
    const sign = h(
      'span',
      { class: `sv-l-mark ${right ? 'sv-l-mark--right' : 'sv-l-mark--other'}` },
      right ? '✓' : known ? '–' : '?',
    );
    const box = h(
      'span',
      {},
      sign,
      ' ',
      h(
        'span',
        { class: 'sv-hush' },
        t(right ? 'lesson.survey.is_right' : known ? 'lesson.survey.is_other' : 'lesson.survey.is_open'),
      ),
    );
    if (known) box.append(choice(question, index));
    else box.append(t(index === undefined ? 'lesson.survey.unanswered' : 'lesson.survey.unknown'));
    return box;
  }

  function choice(question, index) {
    const words = h('span');
    words.append(flat(question.options[index]));
    return words;
  }

  draw();
  return { total: 0, first: 0, go() {} };
}

/** Check questions: each answered by itself, each with its reasons. */
export function mountQuiz(root, stage) {
  const { lesson, ctx, memory } = stage;
  const { t } = ctx;
  const boxes = lesson.quiz.map((question, index) => {
    const box = h('div', { class: 'sv-l-quiz' });
    drawQuestion(box, question, index);
    return box;
  });
  root.append(...boxes);

  function drawQuestion(box, question, index) {
    const chosen = memory.answers('quiz')?.[question.id] ?? null;
    const group = options({ ...question, number: index + 1 }, { chosen, disabled: chosen !== null, t });
    const put = (value) => {
      memory.setAnswers('quiz', { ...memory.answers('quiz'), [question.id]: value });
      drawQuestion(box, question, index);
      stage.refreshed?.();
    };
    const open = h('p', { class: 'sv-l-about', role: 'status' });
    const check = h('button', { class: 'sv-run', type: 'submit' }, t('lesson.quiz.check'));
    const form = h('form', { class: 'sv-l-form' }, group.element, chosen === null ? check : null, open);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (group.value === null) open.textContent = t('lesson.ask.none');
      else {
        put(group.value);
        box.querySelector('[tabindex="-1"]')?.focus();
      }
    });
    box.replaceChildren(form);
    if (chosen === null) return;
    group.rows[question.answer].classList.add('sv-l-option--right');
    group.rows[question.answer].append(h('span', { class: 'sv-l-option-note' }, t('lesson.quiz.right')));
    if (chosen !== question.answer)
      group.rows[chosen].append(h('span', { class: 'sv-l-option-note' }, t('lesson.quiz.yours')));
    const again = h(
      'button',
      {
        class: 'sv-l-quiet',
        type: 'button',
        onClick: () => {
          put(undefined);
          box.querySelector('input')?.focus();
        },
      },
      t('lesson.quiz.again'),
    );
    const verdict = h('b', {}, t(chosen === question.answer ? 'lesson.quiz.agree' : 'lesson.quiz.differ'));
    box.append(h('div', { class: 'sv-l-feedback', tabindex: '-1' }, verdict, block(question.feedback)), again);
  }

  return { total: 0, first: 0, go() {} };
}
