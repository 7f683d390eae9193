/** Servers side by side: one sentence, charts, the numbers, where they were measured, and every question to be replayed. */

import { mountCharts } from '../charts.js';
import { h, say } from '../dom.js';
import { paints } from '../lab/figures.js';
import { savePng, saveText } from '../lab/results.js';
import { themeOf } from '../shell.js';
import { inTurn } from '../turn.js';
import { Replay } from './replay.js';

export class Sides {
  #root;
  #host;
  #ctx;
  #options;
  #parts = {};
  #view = null; // what the server says of them
  #theme = null; // the one the view was drawn for
  #replayed = null; // the question whose answers stand below

  /**
   * options = {source() -> {runs} or {record} or null, place: {at, question, set(patch)}, origin, seen(), name, empty, below}.
   * `seen` says whether this room is on the page: charts that nobody sees would have no width. `empty` is the
   * key of what is said while there is no source. `below` takes the questions where `root` is too narrow for a board.
   */
  constructor(root, host, ctx, options) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#options = options;
  }

  build() {
    const { boot, words } = this.#host;
    const { t } = this.#ctx;
    this.#options.below?.replaceChildren();
    this.#parts.charts?.show([]);
    this.#parts.replay?.destroy();
    this.#replayed = null;
    const plots = h('div', { class: 'sv-x-plots sv-serve-plots' });
    const replay = h('div', { class: 'sv-serve-replay-body' });
    const parts = {
      alert: h('p', { class: 'sv-alert', role: 'alert' }),
      empty: h('p', { class: 'sv-none' }),
      levels: h('div', { class: 'sv-serve-levels' }),
      verdict: h('p', { class: 'sv-lab-verdict sv-x-verdict', 'aria-live': 'polite' }),
      why: h('ul', { class: 'sv-why sv-serve-why' }),
      from: h('p', { class: 'sv-lab-filled' }),
      differ: h('div'),
      plots,
      numbers: h('div'),
      questions: h('section', { class: 'sv-section sv-serve-questions', 'aria-label': t('serve.questions') }),
      replayed: h('section', { class: 'sv-section sv-serve-replay', tabindex: '-1', hidden: true }),
      heading: h('h3', { class: 'sv-h2' }),
      conditions: h('div', { class: 'sv-serve-conditions' }),
    };
    parts.replayed.append(parts.heading, replay);
    parts.tools = this.#makeTools();
    this.#parts = parts;
    this.#root.replaceChildren(
      parts.alert,
      parts.empty,
      parts.levels,
      parts.verdict,
      parts.why,
      parts.from,
      parts.differ,
      plots,
      parts.numbers,
      parts.conditions,
      parts.tools.element,
    );
    (this.#options.below ?? this.#root).append(parts.questions, parts.replayed);
    parts.charts = mountCharts(plots, { boot, words, heading: `serve.room.${this.#options.name}` });
    parts.replay = new Replay(replay, this.#host, this.#ctx, this.#options.origin);
    this.ask();
  }

  /** The theme may have changed, or the room is seen again. */
  draw() {
    if (this.#theme !== themeOf(this.#host.state)) this.ask();
  }

  leave() {
    this.#theme = null;
  }

  arrive() {
    if (this.#theme === null) {
      this.#parts.charts.show([]);
      this.ask();
    }
  }

  // ------------------------------------------------------------ asking

  async #served(asked) {
    const { server, words, state } = this.#host;
    try {
      return (await server.served({ ...this.#options.source(), ...asked, language: words.lang, theme: themeOf(state) })) ?? null;
    } catch (error) {
      console.error(error);
      return null;
    }
  }

  /** Something has changed: the server is asked anew, one question at a time. */
  ask = inTurn(async () => {
    if (!this.#options.source()) {
      this.#view = null;
      say(this.#parts.alert, '');
      this.#drawView();
      await this.#replay();
      return;
    }
    if (!this.#options.seen()) {
      this.#theme = null;
      return;
    }
    if (!this.#view) this.#sayInstead('serve.reading');
    const theme = themeOf(this.#host.state);
    const view = await this.#served({ at: this.#options.place.at });
    if (!this.#options.seen()) return;
    const { t } = this.#ctx;
    say(this.#parts.alert, !view ? t('serve.failed') : view.error ? t(view.error.key, view.error.args) : '');
    if (view && !view.error) [this.#view, this.#theme] = [view, theme];
    this.#drawView();
    await this.#replay();
  });

  async #replay() {
    const { question } = this.#options.place;
    const { replay, replayed, heading } = this.#parts;
    const wanted = this.#view && question !== null ? this.#view.questions[question] : null;
    if (!wanted) {
      replay.clear();
      replayed.hidden = true;
      this.#replayed = null;
      return;
    }
    const answer = await this.#served({ at: this.#view.at, question });
    if (!answer?.answers || this.#parts.replay !== replay) return;
    replayed.hidden = false;
    say(heading, this.#ctx.t('serve.replay.title', { number: question + 1 }));
    replay.show(answer.answers, answer.chart);
    // Where it was asked for by hand, one is taken there; a link that opens with it stays at the top.
    if (this.#replayed !== question && this.#parts.questions.contains(document.activeElement)) replayed.focus();
    this.#replayed = question;
  }

  // ------------------------------------------------------------ what is seen

  #drawView() {
    const { verdict = '', charts = [], table = null } = this.#view ?? {};
    const parts = this.#parts;
    say(parts.verdict, verdict);
    parts.why.replaceChildren(...(this.#view?.why ?? []).map((reason) => h('li', {}, reason)));
    parts.why.hidden = !parts.why.childElementCount;
    const notes = [...new Set((this.#view?.conditions ?? []).map(({ note }) => note).filter(Boolean))];
    parts.from.replaceChildren(...(charts.length ? [this.#ctx.badge(this.#options.origin), ...notes.map((note) => ` ${note}`)] : []));
    this.#drawLevels();
    this.#drawDiffer();
    parts.charts.show(charts);
    for (const { figure, summary } of charts) {
      const plot = [...parts.plots.querySelectorAll('.sv-chart-plot')].find((each) => each.getAttribute('aria-label').endsWith(summary));
      plot.style.height = `${figure.layout.height}px`;
    }
    parts.numbers.replaceChildren(...(table?.rows.length ? [this.#table(table)] : []));
    this.#drawConditions();
    this.#drawQuestions();
    parts.tools.element.hidden = !charts.length;
    parts.verdict.hidden = !verdict;
    this.#sayInstead(this.#options.source() ? null : this.#options.empty);
  }

  /** What stands where nothing is to be seen. */
  #sayInstead(key) {
    this.#parts.empty.hidden = key === null;
    if (key !== null) say(this.#parts.empty, this.#ctx.t(key));
  }

  #drawLevels() {
    const { levels = [], at } = this.#view ?? {};
    const { t } = this.#ctx;
    const focused = this.#parts.levels.contains(document.activeElement);
    const buttons = levels.map((level) =>
      h(
        'button',
        { type: 'button', 'aria-pressed': String(level === at), onClick: () => this.#options.place.set({ at: level }) },
        t(level === 1 ? 'serve.level.one' : 'serve.level', { count: level }),
      ),
    );
    this.#parts.levels.replaceChildren(
      ...(levels.length > 1 ? [h('span', {}, t('serve.levels')), h('div', { class: 'sv-choice', role: 'group', 'aria-label': t('serve.levels') }, ...buttons)] : []),
    );
    if (focused) this.#parts.levels.querySelector('[aria-pressed="true"]')?.focus();
  }

  #drawDiffer() {
    const { differ = [], conditions = [] } = this.#view ?? {};
    const { t } = this.#ctx;
    this.#parts.differ.replaceChildren(
      ...differ.map(({ said, values, grave }) => {
        const each = values.map((value, index) => `${conditions[index]?.name ?? ''}: ${value}`).join('; ');
        return h('p', { class: grave ? 'sv-x-differ' : 'sv-help' }, t(grave ? 'serve.differ.grave' : 'serve.differ', { name: said, values: each }));
      }),
    );
  }

  #table({ columns, rows }) {
    const caption = this.#ctx.t('serve.table');
    const head = h('tr', {}, ...columns.map((column) => h('th', { scope: 'col' }, column)));
    const body = rows.map(([first, ...cells]) => h('tr', {}, h('th', { scope: 'row' }, first), ...cells.map((cell) => h('td', {}, cell))));
    const table = h('table', { class: 'sv-table sv-x-table', 'aria-label': caption }, h('thead', {}, head), h('tbody', {}, ...body));
    const scroll = h('div', { class: 'sv-x-scroll', role: 'region', tabindex: '0', 'aria-label': caption }, table);
    const details = h('details', { class: 'sv-x-more', open: this.#parts.numbers.querySelector('details')?.open }, h('summary', {}, caption), scroll);
    return details;
  }

  #drawConditions() {
    const { conditions = [] } = this.#view ?? {};
    const { t } = this.#ctx;
    const alike = new Set(conditions.map(({ said }) => said)).size === 1;
    const lines = alike ? conditions.slice(0, 1).map(({ said }) => said) : conditions.map(({ name, said }) => `${name}: ${said}`);
    const commands = conditions.filter(({ command }) => command);
    const open = this.#parts.conditions.querySelector('details')?.open;
    this.#parts.conditions.replaceChildren(
      ...lines.map((line) => h('p', { class: 'sv-l-about' }, line)),
      ...(commands.length
        ? [
            h(
              'details',
              { class: 'sv-x-more', open },
              h('summary', {}, t('serve.commands')),
              h('p', { class: 'sv-help' }, t('serve.commands.help')),
              ...commands.flatMap(({ name, command }) => [h('p', { class: 'sv-serve-whose' }, name), h('pre', { class: 'sv-serve-code' }, command)]),
            ),
          ]
        : []),
    );
  }

  #drawQuestions() {
    const { questions = [], conditions = [] } = this.#view ?? {};
    const { t } = this.#ctx;
    const { place } = this.#options;
    const at = [...this.#parts.questions.querySelectorAll('button')].indexOf(document.activeElement);
    const rows = questions.map(({ task, prompt, cells }, index) => {
      const times = cells.map((cell, which) => `${conditions[which].name} ${cell}`).join(' · ');
      const pressed = index === place.question;
      const button = h(
        'button',
        { type: 'button', class: 'sv-serve-question', 'aria-pressed': String(pressed), onClick: () => place.set({ question: pressed ? null : index }) },
        h('span', { class: 'sv-serve-prompt' }, prompt),
        h('span', { class: 'sv-help' }, [task, times].filter((each) => each && each !== '–').join(' · ')),
      );
      return h('li', {}, button);
    });
    this.#parts.questions.hidden = !rows.length;
    this.#parts.questions.replaceChildren(
      h('h3', { class: 'sv-h2' }, t('serve.questions')),
      h('p', { class: 'sv-help' }, t('serve.questions.help')),
      h('ol', { class: 'sv-serve-asked' }, ...rows),
    );
    if (at >= 0) this.#parts.questions.querySelectorAll('button')[at]?.focus();
  }

  // ------------------------------------------------------------ files

  #makeTools() {
    const { t } = this.#ctx;
    const button = (key, onClick) => h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick }, t(key));
    const save = (kind, type) => async () => {
      const answer = await this.#served({ as: kind });
      if (answer?.text) saveText(answer.text, this.#name(kind), type);
      else say(this.#parts.alert, t('serve.failed'));
    };
    const element = h(
      'div',
      { class: 'sv-tools', 'data-hide': 'tools', hidden: true },
      button('experiments.csv', save('csv', 'text/csv')),
      button('experiments.json', save('json', 'application/json')),
      button('experiments.png', () => this.#savePng()),
    );
    return { element };
  }

  async #savePng() {
    const { t } = this.#ctx;
    const { charts, verdict, why, conditions } = this.#view;
    const { bg, ink } = paints();
    const titled = charts.map(({ key, figure }) => ({ title: t(`chart.${key}`), figure }));
    const said = conditions.map(({ name, said: each, note }) => `${name}: ${each} ${note}`).join(' ');
    await savePng(titled, { name: this.#name('png'), verdict: [verdict, ...why].join(' '), conditions: said, ground: bg, ink });
  }

  #name(ending) {
    return `specviz-${this.#options.name}.${ending}`;
  }
}
