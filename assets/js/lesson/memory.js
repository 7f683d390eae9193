/** What a learner has done and guessed, kept in this browser and nowhere else. */

const NAME = 'specviz.lessons';
const EMPTY = Object.freeze({ done: [], guesses: {}, answers: {}, ticked: {} });

/** One lesson's page of the notebook. Where the browser keeps no storage it lasts as long as the page. */
export class Memory {
  #slug;
  #page;

  constructor(slug) {
    this.#slug = slug;
    this.#page = { ...EMPTY, ...readAll()[slug] };
  }

  isDone(step) {
    return this.#page.done.includes(step);
  }

  get done() {
    return this.#page.done.length;
  }

  finish(step) {
    if (!this.isDone(step)) this.#set({ done: [...this.#page.done, step] });
  }

  guess(step) {
    return this.#page.guesses[step];
  }

  setGuess(step, value) {
    this.#set({ guesses: without(this.#page.guesses, step, value) });
  }

  /** Answers of a survey or quiz: {question id: option index}; undefined before they were handed in. */
  answers(phase) {
    return this.#page.answers[phase];
  }

  setAnswers(phase, value) {
    this.#set({ answers: without(this.#page.answers, phase, value) });
  }

  /** What is ticked in a survey that was not handed in: {question id: option index}; undefined while nothing is. */
  ticked(phase) {
    return this.#page.ticked[phase];
  }

  setTicked(phase, value) {
    this.#set({ ticked: without(this.#page.ticked, phase, value) });
  }

  forget() {
    this.#set(EMPTY);
  }

  #set(patch) {
    this.#page = { ...this.#page, ...patch };
    try {
      localStorage.setItem(NAME, JSON.stringify({ ...readAll(), [this.#slug]: this.#page }));
    } catch (error) {
      console.info('progress not kept:', error.name);
    }
  }
}

/** The same object with `name` set, or left out when the value is undefined. */
function without(object, name, value) {
  return Object.fromEntries([
    ...Object.entries(object).filter(([each]) => each !== name),
    ...(value === undefined ? [] : [[name, value]]),
  ]);
}

function readAll() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) ?? '{}');
    return kept !== null && typeof kept === 'object' ? kept : {};
  } catch (error) {
    console.info('no progress read:', error.name);
    return {};
  }
}
