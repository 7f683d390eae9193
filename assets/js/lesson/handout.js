/** The whole lesson on paper: every step with its words, question and figure, the answers together at the end. */

import { h } from '../dom.js';
import { block } from './prose.js';
import { flat } from './questions.js';
import { makeStage } from './stage.js';

/** Figures of which nothing is to be seen before the guess. */
const SHUT = new Set(['experiment', 'race', 'runs']);

/** Returns {element, destroy()}; the element is seen by printers only (lesson.css). */
export function makeHandout({ host, lesson, texts, ctx, memory }) {
  const { t } = ctx;
  const stages = [];
  const stageOf = (step, asks) => {
    const stage = makeStage({ host, lesson, step, texts, ctx, memory, keep: {}, asks, live: false });
    stages.push(stage);
    return stage;
  };
  const told = (step) => {
    const stage = stageOf(step, false);
    stage.go(stage.total);
    return stage.element;
  };
  /** {figure, answer}: what a step shows, and what its reader is not to see before the guess. */
  const partsOf = (step) => {
    const { kind, phase } = step.figure;
    if (phase === 'after') return {}; // on paper the same questions once are enough
    if (kind === 'survey') return { figure: questions(lesson.survey) };
    if (kind === 'quiz') return { figure: questions(lesson.quiz), answer: lesson.quiz.flatMap(reasons) };
    if (!step.ask) return { figure: told(step) };
    const before = stageOf(step, true);
    const after = before.total ? told(step) : '';
    const right = step.ask.kind === 'choice' ? flat(step.ask.options[step.ask.answer]) : ctx.number(step.ask.answer, 2, false);
    return {
      figure: SHUT.has(kind) ? '' : before.element,
      answer: [h('p', {}, h('b', {}, `${t('lesson.ask.truth')}:`), ' ', right), after, block(step.reveal)],
    };
  };
  const reasons = ({ options, answer, feedback }, index) => [
    h('p', {}, h('b', {}, t('lesson.question.number', { number: index + 1 })), ' ', flat(options[answer])),
    block(feedback),
  ];
  const title = (tag, step, index) => h(tag, {}, `${index + 1}. ${step.title}`);
  const parts = lesson.steps.map(partsOf);
  const steps = lesson.steps.map((step, index) =>
    h(
      'section',
      { class: 'sv-l-handout-step' },
      title('h2', step, index),
      block(step.html),
      step.ask ? questions([step.ask]) : '',
      step.ask ? h('p', { class: 'sv-l-handout-guess' }, `${t('lesson.ask.guessed')}:`) : '',
      parts[index].figure ?? '',
    ),
  );
  const answers = lesson.steps.map((step, index) =>
    parts[index].answer
      ? h('section', { class: 'sv-l-handout-answer' }, title('h3', step, index), ...parts[index].answer)
      : '',
  );
  const element = h(
    'article',
    { class: 'sv-l-handout' },
    h('h1', {}, `${lesson.number} ${lesson.title}`),
    h('p', { class: 'sv-l-handout-question' }, lesson.question),
    ...steps,
    h('section', { class: 'sv-l-handout-answers' }, h('h2', {}, t('lesson.handout.answers')), ...answers),
  );
  return {
    element,
    destroy() {
      for (const stage of stages) stage.destroy();
      element.remove();
    },
  };
}

function questions(list) {
  const one = (question) => {
    const box = h('div', { class: 'sv-l-handout-ask' }, flat(question.html));
    const choices = (question.options ?? []).map((choice) => {
      const item = h('li');
      item.append(flat(choice));
      return item;
    });
    if (choices.length) box.append(h('ul', {}, ...choices));
    return box;
  };
  return h('div', {}, ...list.map(one));
}
