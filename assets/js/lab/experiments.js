/** The experiments room: choose a question, run it in the line, watch the numbers come; keep, open and compare results. */

import { mountCharts } from '../charts.js';
import { h, say } from '../dom.js';
import { themeOf } from '../shell.js';
import { inTurn } from '../turn.js';
import { Conduct } from './conduct.js';
import { makeForm } from './declare.js';
import { paints } from './figures.js';
import { read, weightOf, wholeWeight, written } from './kinds.js';
import { quantspec } from './quantspec.js';
import { kindOf, MOST_BYTES, parsed, savePng, saveText, SCHEMA } from './results.js';

const FEW_ROWS = 18; // more are put away until they are wanted
const CALLED = 'x'; // what holds the choices in the address
const TABLES = Object.freeze({
  streaming: 'experiments.table.plain',
  concurrency: 'experiments.table.load',
  context: 'experiments.table.numbers',
  quantisation: 'experiments.table.numbers',
});

export class ExperimentsRoom {
  #root;
  #host;
  #ctx;
  #kept;
  #conduct;
  #result = null; // the record on show: of the last run, or opened
  #coming = null; // the record of a run that has no point yet; until then the one before stays on show
  #origin = 'measured'; // or recorded, where it was opened
  #beside = null; // {record, name}: a second one of the same kind, opened
  #view = null; // what the server says of them
  #theme = null; // the one the view was drawn for
  #progress = null; // {done, of, weight, whole, began, first} of the run that goes on; `first`: when its first point came
  #status = null; // {key, args}: the last thing that was said

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#kept = read(new URLSearchParams(location.search).get(CALLED) ?? '', host.boot);
    this.#conduct = new Conduct(host, {
      said: (said) => this.#tell(said.key, said.args),
      begun: (record, of) => this.#begin(record, of),
      point: (point) => this.#point(point),
      ended: (how) => this.#end(how),
    });
    this.build();
  }

  #form;
  #run;
  #said;
  #bar;
  #alert;
  #verdict;
  #from;
  #notes;
  #charts = null;
  #plots;
  #picture;
  #numbers;
  #conditions;
  #tools;

  build() {
    const { words, boot } = this.#host;
    const { t } = this.#ctx;
    this.#charts?.show([]);
    this.#form = makeForm({ boot, words, ctx: this.#ctx, kept: this.#kept, changed: () => this.#changed() });
    this.#run = h('button', { class: 'sv-run', type: 'button', onClick: () => this.#press() });
    this.#said = h('p', { class: 'sv-x-said', role: 'status' });
    this.#bar = h('progress', { class: 'sv-x-bar', 'aria-label': t('experiments.run') });
    this.#alert = h('p', { class: 'sv-alert', role: 'alert' });
    this.#verdict = h('p', { class: 'sv-lab-verdict sv-x-verdict' });
    this.#from = h('p', { class: 'sv-lab-filled' });
    this.#notes = h('div', { class: 'sv-x-notes' });
    this.#plots = h('div', { class: 'sv-x-plots' });
    this.#picture = h('div', { class: 'sv-x-picture' });
    this.#numbers = h('div');
    this.#conditions = h('p', { class: 'sv-l-about' });
    this.#tools = this.#makeTools();
    this.#root.replaceChildren(
      h('p', { class: 'sv-lead' }, t('experiments.lead')),
      this.#form.questions,
      h(
        'div',
        { class: 'sv-lab-desk sv-x-desk' },
        h('div', { class: 'sv-lab-side' }, this.#form.element),
        h(
          'div',
          { class: 'sv-x-main' },
          h('div', { class: 'sv-x-go' }, this.#run, this.#form.size),
          h('div', { class: 'sv-x-state' }, this.#said, this.#bar),
          this.#alert,
          this.#verdict,
          this.#from,
          this.#notes,
          this.#plots,
          this.#picture,
          this.#numbers,
          this.#conditions,
          this.#tools.element,
        ),
      ),
    );
    this.#charts = mountCharts(this.#plots, { boot, words, heading: 'lab.room.experiments' });
    this.#drawState();
    if (this.#result) this.#ask();
    else this.#drawView();
  }

  #makeTools() {
    const { t } = this.#ctx;
    const button = (key, onClick) => h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick }, t(key));
    const picker = h('input', { type: 'file', accept: '.json,application/json', hidden: true });
    picker.addEventListener('change', () => {
      const [file] = picker.files;
      picker.value = '';
      if (file) this.#open(file);
    });
    const csv = button('experiments.csv', () => this.#saveCsv());
    const json = button('experiments.json', () => saveText(JSON.stringify(this.#result), this.#name('json'), 'application/json'));
    const png = button('experiments.png', () => this.#savePng());
    const open = button('experiments.import', () => picker.click());
    return { element: h('div', { class: 'sv-tools', 'data-hide': 'tools' }, csv, json, png, open, picker), csv, json, png, open };
  }

  draw() {
    if (this.#result && this.#theme !== themeOf(this.#host.state)) this.#ask();
  }

  /** What was drawn or asked while the visitor went is drawn anew: without a place that is seen it had no width. */
  arrive() {
    this.#writeAddress();
    if (this.#theme === null) this.#charts.show([]);
    this.draw();
  }

  /** A run goes on: it is long, and its visitor comes back. */
  leave() {
    this.#theme = null;
  }

  /** Charts are not drawn while nobody sees them: they would have no width. */
  get #seen() {
    const { state } = this.#host;
    return state.get('page') === 'lab' && state.get('lab_room') === 'experiments';
  }

  #changed() {
    this.#writeAddress();
    this.#drawState();
  }

  #writeAddress() {
    const url = new URL(location.href);
    const text = written(this.#kept, this.#host.boot);
    if (text) url.searchParams.set(CALLED, text);
    else url.searchParams.delete(CALLED);
    if (url.href !== location.href) history.replaceState(history.state, '', url);
  }

  take(text) {
    this.#conduct.take(text);
  }

  // ------------------------------------------------------------ a run

  #press() {
    if (this.#conduct.on) {
      this.#conduct.stop();
      return;
    }
    const request = this.#form.request();
    if (!request) return;
    say(this.#alert, '');
    this.#conduct.start(request);
    this.#drawState();
  }

  #begin(record, of) {
    this.#coming = record;
    this.#progress = { done: 0, of, weight: 0, whole: wholeWeight(record, of), began: performance.now() };
    this.#drawState();
  }

  /** The record of the run that goes on takes the place of what was on show. */
  #take() {
    const record = this.#coming;
    this.#coming = null;
    [this.#result, this.#origin, this.#view] = [record, 'measured', null];
    if (this.#beside && kindOf(this.#beside.record) !== kindOf(record)) this.#beside = null;
    this.#drawView();
  }

  #point(point) {
    if (this.#coming) this.#take();
    this.#points.push(point);
    const progress = this.#progress;
    progress.done += 1;
    progress.whole -= weightOf(this.#result.kind, point);
    // What runs before the first point only warms up, and says nothing of how long the others take.
    if (progress.first) progress.weight += weightOf(this.#result.kind, point);
    progress.first ??= performance.now();
    const { done, of, weight, whole, first } = progress;
    const left = ((performance.now() - first) / weight) * Math.max(whole, 0);
    const seconds = weight && done < of ? { key: 'experiments.left', args: { seconds: this.#seconds(left) } } : null;
    this.#tell('experiments.progress', { done, of }, seconds);
    this.#ask();
  }

  /** What the record grows by. */
  get #points() {
    return this.#result.points ?? this.#result.samples;
  }

  #end({ finish, notice, more = {} }) {
    const { t } = this.#ctx;
    if (this.#progress) {
      const { done, of, began } = this.#progress;
      if (this.#coming && finish === 'done') this.#take();
      if (!this.#coming) Object.assign(this.#result, more, { finish: finish ?? 'stopped' });
      this.#coming = null;
      const args = { done, of, seconds: this.#seconds(performance.now() - began) };
      // What was refused at once has its own sentence.
      const key = finish === 'done' ? 'experiments.done' : done || !notice ? 'experiments.stopped' : null;
      this.#tell(key, args);
    } else this.#tell(null);
    this.#progress = null;
    say(this.#alert, notice ? t(notice.key, notice.args) : '');
    if (this.#result) this.#ask();
    this.#drawState();
  }

  #seconds(ms) {
    return this.#ctx.number(ms / 1000, 0);
  }

  // ------------------------------------------------------------ files

  async #open(file) {
    const { t } = this.#ctx;
    say(this.#alert, '');
    if (file.size > MOST_BYTES) {
      say(this.#alert, t('experiments.import.big', { most: MOST_BYTES / 1e6 }));
      return;
    }
    const record = parsed(await file.text());
    const answer = record ? await this.#see({ result: record }) : null;
    if (!answer || answer.error) {
      const { key, args } = answer?.error ?? { key: 'experiments.import.other', args: { schema: SCHEMA } };
      say(this.#alert, t(key, args));
      return;
    }
    const beside = this.#result && kindOf(this.#result) === kindOf(record);
    if (beside) this.#beside = { record, name: file.name };
    else [this.#result, this.#origin, this.#beside] = [record, 'recorded', null];
    this.#tell(null);
    this.#ask();
    this.#drawState();
  }

  async #saveCsv() {
    const answer = await this.#see({ result: this.#result, as: 'csv' });
    if (answer?.csv) saveText(answer.csv, this.#name('csv'), 'text/csv');
  }

  async #savePng() {
    const { t } = this.#ctx;
    const { charts, verdict, conditions } = this.#view;
    const { bg, ink } = paints();
    const titled = charts.map(({ key, figure }) => ({ title: t(`chart.${key}`), figure }));
    await savePng(titled, { name: this.#name('png'), verdict, conditions, ground: bg, ink });
  }

  #name(ending) {
    const day = String(this.#result.conditions.created ?? '').slice(0, 10);
    return ['specviz', kindOf(this.#result), day].filter(Boolean).join('-') + `.${ending}`;
  }

  // ------------------------------------------------------------ what the server says of the results

  async #see(asked) {
    const { server, words, state } = this.#host;
    try {
      return (await server.experiment({ ...asked, language: words.lang, theme: themeOf(state) })) ?? null;
    } catch (error) {
      console.error(error);
      return null;
    }
  }

  /** More has come: the server is asked anew, one question at a time; what came unseen is asked about on arrival. */
  #ask = inTurn(async () => {
    if (!this.#seen) {
      this.#theme = null;
      return;
    }
    const theme = themeOf(this.#host.state);
    const view = await this.#see({ result: this.#result, beside: this.#beside?.record ?? null });
    if (!this.#seen) return;
    if (view && !view.error) [this.#view, this.#theme] = [view, theme];
    else say(this.#alert, this.#ctx.t('experiments.failed'));
    this.#drawView();
    this.#drawState();
  });

  // ------------------------------------------------------------ what is seen

  /** `more` is a second sentence. */
  #tell(key, args = {}, more = null) {
    this.#status = key ? { key, args, more } : null;
    this.#drawState();
  }

  #drawState() {
    const { t } = this.#ctx;
    const running = this.#conduct.on;
    say(this.#run, t(running ? 'control.stop' : 'experiments.run'));
    this.#run.classList.toggle('sv-run--stop', running);
    this.#run.setAttribute('aria-disabled', String(!running && !this.#form.request()));
    const status = this.#status ?? (this.#result || running ? null : { key: 'experiments.empty', args: {} });
    const said = status ? [t(status.key, status.args), status.more ? t(status.more.key, status.more.args) : ''] : [];
    // Every point would be read aloud; the end is.
    this.#said.setAttribute('aria-live', this.#progress ? 'off' : 'polite');
    say(this.#said, said.filter(Boolean).join(' '));
    this.#bar.hidden = !running || !this.#progress;
    if (this.#progress) [this.#bar.max, this.#bar.value] = [this.#progress.of, this.#progress.done];
    const whole = Boolean(this.#view) && this.#view.charts.length > 0;
    this.#tools.csv.disabled = !whole;
    this.#tools.json.disabled = !whole;
    this.#tools.png.disabled = !whole;
    this.#tools.open.disabled = running;
  }

  #drawView() {
    const { t } = this.#ctx;
    const { verdict = '', charts = [], table = null, conditions = '', partial = null, differ = [] } = this.#view ?? {};
    this.#verdict.setAttribute('aria-live', this.#progress ? 'off' : 'polite');
    const [first, rest] = firstSentence(verdict);
    if (this.#verdict.textContent !== `${first}${rest}`) this.#verdict.replaceChildren(first, rest && h('span', {}, rest));
    const part = partial && !this.#progress ? t('experiments.partial', partial) : '';
    this.#from.replaceChildren(...(charts.length ? [this.#ctx.badge(this.#origin, this.#result), ' ', part] : []));
    this.#notes.replaceChildren(...this.#besideNotes(differ));
    this.#charts.show(charts);
    // A figure that is made anew when the window changes takes the height of its place.
    for (const { figure, summary } of charts) {
      const plot = [...this.#plots.querySelectorAll('.sv-chart-plot')].find((each) => each.getAttribute('aria-label').endsWith(summary));
      plot.style.height = `${figure.layout.height}px`;
    }
    // One cache that draft and target share, beside what a cache of few bits did here.
    this.#picture.replaceChildren(...(charts.length && kindOf(this.#result) === 'quantisation' ? [quantspec(t)] : []));
    this.#numbers.replaceChildren(...(table ? this.#table(table) : []));
    say(this.#conditions, conditions);
  }

  #besideNotes(differ) {
    if (!this.#beside) return [];
    const { t } = this.#ctx;
    const away = h(
      'button',
      {
        class: 'sv-quiet sv-quiet--tool',
        type: 'button',
        onClick: () => {
          this.#beside = null;
          this.#ask();
        },
      },
      t('experiments.beside.away'),
    );
    const said = differ.length ? t('experiments.differ', { names: differ.join(', ') }) : t('experiments.alike');
    return [
      h('p', { class: 'sv-x-beside' }, t('experiments.beside', { name: this.#beside.name }), ' ', away),
      h('p', { class: differ.length ? 'sv-x-differ' : 'sv-help' }, said),
    ];
  }

  #table({ columns, rows }) {
    const { t } = this.#ctx;
    const caption = t(TABLES[kindOf(this.#result)] ?? 'experiments.table');
    // Numbers stand under each other, words begin under each other.
    const looks = columns.map((_, at) => (rows.every((row) => /^\p{L}/u.test(row[at])) ? 'sv-x-words' : ''));
    const head = h('tr', {}, ...columns.map((column, at) => h('th', { scope: 'col', class: looks[at] }, h('span', { class: 'sv-x-column' }, column))));
    const body = rows.map(([first, ...cells]) => h('tr', {}, h('th', { scope: 'row' }, first), ...cells.map((cell, at) => h('td', { class: looks[at + 1] }, cell))));
    const table = h('table', { class: 'sv-table sv-x-table', 'aria-label': caption }, h('thead', {}, head), h('tbody', {}, ...body));
    const scroll = h('div', { class: 'sv-x-scroll', role: 'region', tabindex: '0', 'aria-label': caption }, table);
    // On a phone a caption inside would be as wide as the table.
    if (rows.length <= FEW_ROWS) return [h('p', { class: 'sv-x-caption' }, caption), scroll];
    return [h('details', { class: 'sv-x-more' }, h('summary', {}, caption), scroll)];
  }
}

/** The first sentence of a verdict, which is its answer, and the space and sentences behind it. */
export function firstSentence(text) {
  const end = text.search(/(?<=[.!?])\s+(?=\p{Lu})/u);
  return end < 0 ? [text, ''] : [text.slice(0, end), text.slice(end)];
}
