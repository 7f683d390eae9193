/** The Live place: what is asked, the board, one sentence, the finished text, the questions. */

import { rivals } from './against.js';
import { mountBoard } from './board.js';
import { mountCompare } from './compare.js';
import { mountComposer } from './composer.js';
import { h } from './dom.js';
import { mountFinished } from './finished.js';
import { goToLab } from './lab.js';
import { badge } from './numbers.js';
import { mountQuestions } from './questions.js';
import { asRecorded, Run, traceLines } from './run.js';
import { themeOf } from './shell.js';
import { mountTools } from './tools.js';
import { Bundle } from './trace.js';

const POLL = 2000;
/** The verdicts that compare with plain decoding; where there is nothing to compare with, the counts speak alone. */
const COMPARED = new Set(['verdict.faster', 'verdict.slower', 'verdict.even']);

export function mountLive(root, host) {
  return new Live(root, host);
}

class Live {
  #host;
  #run = null;
  #ready = false;
  #done = false; // the last thing that happened was the end of a run
  #server = { key: 'shell.state.asking', args: {} };
  #trace = null; // the one looked at on the board
  #upto = null; // how many of its rounds are shown; null: all
  #bundle = null;
  #ndjson = ''; // the traces on the board, when they are whole
  #before = ''; // those that stood there when the run began
  #asked = 0; // counts questions to the server, so that only the last answer is shown
  #view = null;
  #due = false; // numbers and charts are to be asked for when the server is back

  constructor(root, host) {
    this.#host = host;
    const { state, words } = host;
    const ctx = {
      t: words.t,
      lang: () => words.lang,
      badge: (origin) => this.#badge(origin),
      moved: (place) => this.#follow(place),
    };
    const parts = this.#lay(root);
    this.#composer = mountComposer(parts.composer, host, {
      run: () => this.#start(),
      stop: () => this.#run?.stop(),
      preset: (name) => this.#choose(name),
    });
    this.#compare = mountCompare(parts.compare, { words });
    this.#verdict = parts.verdict;
    this.#finished = mountFinished(parts.finished, ctx);
    this.#questions = mountQuestions(parts.questions, { ...host, ctx, toLab: () => goToLab(host) });
    this.#board = mountBoard(parts.board, ctx);
    this.#tools = mountTools(parts.tools, host, {
      file: () =>
        this.#ndjson ? { text: asRecorded(this.#ndjson), name: `specviz-${this.#trace?.run ?? 'trace'}.ndjson` } : null,
      take: (text) => this.#import(text),
      fail: (key, args) => this.#composer.alert(words.t(key, args)),
    });
    host.watch('value', () => this.#run?.take(host.props.value));
    this.#paintFirst();
    // A lesson that is left opens its run here.
    host.open = (text) => this.#import(text);
    // The Lab looks at what stands on the board.
    host.finished = () => this.#ndjson;
    this.#poll();
  }

  #board;
  #compare;
  #composer;
  #finished;
  #questions;
  #tools;
  #verdict;

  /** A place of the shell: these names of the state have changed. */
  redraw(changed) {
    if (changed.includes('lang')) this.#setWords();
    if (changed.includes('lang') || changed.includes('theme')) this.#ask();
    this.#composer.draw();
  }

  #lay(root) {
    const { words } = this.#host;
    const parts = Object.fromEntries(
      ['composer', 'board', 'tools', 'finished', 'questions'].map((name) => [
        name,
        h('div', { class: `sv-${name}-box` }),
      ]),
    );
    parts.compare = h('section', { 'data-hide': 'compare', hidden: true });
    parts.verdict = h('p', { class: 'sv-verdict' });
    root.append(
      words.bind(h('h1', { class: 'sv-title' }), 'shell.title'),
      h('section', { class: 'sv-composer' }, parts.composer),
      parts.compare,
      h('section', { class: 'sv-figure' }, parts.verdict, parts.board, parts.tools),
      h(
        'section',
        { class: 'sv-section', 'data-hide': 'finished' },
        words.bind(h('h2', { class: 'sv-h2' }), 'finished.title'),
        parts.finished,
      ),
      h(
        'section',
        { class: 'sv-section', 'data-hide': 'questions' },
        words.bind(h('h2', { class: 'sv-h2' }), 'question.title'),
        parts.questions,
      ),
    );
    return parts;
  }

  // ------------------------------------------------------------ what is on the board

  #show(bundle, { live = false } = {}) {
    this.#done = false;
    this.#bundle = bundle;
    this.#trace = bundle.traces[0] ?? null;
    this.#upto = null;
    this.#view = null;
    this.#board.setBundle(bundle, { live });
    this.#drawCompare();
    this.#finished.show(this.#trace);
    this.#questions.setBundle(bundle, this.#trace);
    this.#questions.setView(null);
    this.#drawVerdict();
  }

  #showFile(text) {
    this.#ndjson = text;
    this.#show(Bundle.of(text));
    this.#ask();
  }

  async #paintFirst() {
    const { state } = this.#host;
    // What was recorded of an example is no answer to other words, which a link may bring.
    if (state.isOwn) this.#show(new Bundle());
    else await this.#recorded(state.get('preset'));
  }

  async #recorded(name) {
    const { boot, state, words } = this.#host;
    const path = boot.presets.find((preset) => preset.name === name)?.trace;
    if (name === boot.first?.preset) return this.#showFile(boot.first.ndjson);
    if (!path) return this.#show(new Bundle());
    try {
      const answer = await fetch(`${boot.static}${path}`);
      if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
      const text = await answer.text();
      if (state.get('preset') === name && !this.#run) this.#showFile(text);
    } catch (error) {
      console.error(error);
      this.#composer.alert(words.t('shell.preset.failed'));
    }
    return undefined;
  }

  #choose(name) {
    if (this.#run) this.#run.stop();
    this.#run = null;
    this.#composer.alert('');
    this.#host.state.choosePreset(name);
    this.#drawState();
    this.#recorded(name);
  }

  // ------------------------------------------------------------ a run

  #start() {
    const { boot, state, words } = this.#host;
    this.#composer.alert('');
    if (!state.get('prompt').trim()) {
      this.#composer.alert(words.t('shell.prompt.empty'));
      this.#composer.focus();
      return;
    }
    const letters = [...state.get('prompt')].length;
    const limit = boot.limits.prompt_chars;
    if (letters > limit) {
      // The server says so too, but not before the run's turn has come.
      this.#composer.alert(words.t('error.prompt_too_many_letters', { letters, limit }));
      this.#composer.focus();
      return;
    }
    this.#before = this.#ndjson;
    this.#ndjson = '';
    this.#asked += 1;
    this.#run = new Run(this.#host, this.#request(), {
      changed: (run) => this.#take(run),
      ended: (run) => this.#end(run),
      silent: () => this.#saySilent(),
    });
    this.#show(this.#run.bundle, { live: true });
    this.#drawState();
    this.#run.start();
  }

  #request() {
    const { state } = this.#host;
    const names = [
      'prompt',
      'chat',
      'target',
      'drafter',
      'options',
      'length',
      'gamma',
      'temperature',
      'top_p',
      'top_k',
      'repetition_penalty',
      'seed',
      'max_new_tokens',
      'race',
      'lang',
    ];
    const values = Object.fromEntries(names.map((name) => [name, state.get(name)]));
    const judged = { rule: state.rule?.name ?? null, strength: state.strength };
    return {
      ...values,
      ...judged,
      options: state.options,
      race: values.race && values.drafter !== 'none',
      against: rivals(state).map((drafter) => ({ drafter, options: {}, rule: null })),
    };
  }

  /** Nothing has come for a while, and not because others are being served. */
  #saySilent() {
    if (!(this.#run?.bundle.wait > 0)) this.#composer.say(this.#host.words.t('shell.silent'));
  }

  #take(run) {
    if (run !== this.#run) return;
    this.#trace ??= run.bundle.traces[0] ?? null;
    this.#board.refresh();
    this.#drawCompare();
    this.#finished.show(this.#trace, this.#upto);
    this.#questions.setBundle(run.bundle, this.#trace);
    this.#drawVerdict();
    this.#drawState();
  }

  #end(run) {
    if (run !== this.#run) return;
    const { words } = this.#host;
    this.#take(run);
    this.#run = null;
    const whole = run.bundle.traces.every((trace) => trace.finish !== 'stopped');
    this.#done = run.bundle.notices.length === 0 && !run.lost && whole;
    const notice = run.bundle.notices.at(-1);
    const lost = run.lost || notice?.key === 'shell.lost';
    if (lost) this.#composer.alert(words.t(run.bundle.traces.length ? 'shell.lost' : 'shell.lost.all'));
    else if (notice) this.#composer.alert(words.t(notice.key, notice.args));
    this.#ndjson = run.ndjson;
    // Nothing came of it: what stood on the board before stands there again.
    if (run.bundle.traces.length === 0 && this.#before) {
      this.#ndjson = this.#before;
      this.#show(Bundle.of(this.#before));
    }
    this.#drawVerdict();
    this.#drawCompare();
    this.#drawState();
    if (lost) this.#waitForServer();
    else if (this.#trace) this.#ask();
  }

  #import(text) {
    const { state } = this.#host;
    const ndjson = asRecorded(traceLines(text));
    this.#composer.alert('');
    this.#check(ndjson, (view) => {
      const bundle = Bundle.of(ndjson);
      if (!bundle.traces.some((trace) => trace.rounds.length)) {
        this.#composer.alert(this.#host.words.t('shell.import.none'));
        return;
      }
      if (this.#run) this.#run.stop();
      this.#run = null;
      this.#ndjson = ndjson;
      this.#show(bundle);
      const { meta } = this.#trace;
      state.adopt({
        ...meta,
        prompt: meta.prompt_text,
        options: meta.drafter_options,
        script: meta.drafter_options?.script,
        race: meta.drafter !== 'none' && this.#bundle.traces.some((trace) => trace.meta.drafter === 'none'),
        against: this.#bundle.traces.slice(1).map((trace) => trace.meta.drafter).join(','),
      });
      this.#setView(view);
      this.#drawState();
      this.#board.bring();
    });
  }

  // ------------------------------------------------------------ what the server computes from finished traces

  #ask() {
    if (this.#ndjson) this.#check(this.#ndjson, (view) => this.#setView(view));
  }

  async #check(ndjson, then) {
    const { server, words, state } = this.#host;
    this.#asked += 1;
    const mine = this.#asked;
    try {
      const view = answered(await server.view(ndjson, words.lang, themeOf(state)));
      if (mine !== this.#asked) return;
      if (view.error) this.#composer.alert(words.t(view.error.key, view.error.args));
      else then(view);
    } catch (error) {
      console.error(error);
      if (mine === this.#asked) this.#composer.alert(words.t('shell.view.failed'));
    }
  }

  #drawCompare() {
    this.#compare.show(this.#bundle, { expected: this.#run?.rivals ? this.#run.expected : 0 });
  }

  #setView(view) {
    this.#view = view;
    this.#compare.setView(view);
    this.#questions.setView(view);
    this.#drawVerdict();
  }

  // ------------------------------------------------------------ sentences

  #drawVerdict() {
    const { t } = this.#host.words;
    const { verdict } = this.#view ?? {};
    const judged = COMPARED.has(verdict?.key) ? t(verdict.key, verdict.args) : '';
    const counts = this.#counts();
    if (this.#verdict.textContent === `${judged} ${counts}`) return;
    this.#verdict.replaceChildren(judged, ' ', judged ? h('span', {}, counts) : counts);
  }

  /** Until the server has judged the run: what can be counted on the board. */
  #counts() {
    const { t } = this.#host.words;
    const rounds = this.#trace?.rounds.filter((round) => !round.prefill) ?? [];
    if (!rounds.length) return this.#noRound();
    const sum = (count) => rounds.reduce((total, round) => total + count(round), 0);
    const judged = sum((round) => round.judged.length);
    const args = {
      rounds: rounds.length,
      tokens: sum((round) => round.entries.length),
      kept: sum((round) => round.accepted),
      judged,
    };
    return t(judged ? 'shell.verdict.counts' : 'shell.verdict.plain', args);
  }

  /** Why there is no round yet, or none at all. */
  #noRound() {
    const { t } = this.#host.words;
    if (this.#run) return t('shell.verdict.waiting');
    const { finish, meta } = this.#trace ?? {};
    if (finish === 'length') return t('shell.verdict.none');
    if (finish === 'eos') return t(meta.chat ? 'shell.verdict.at_once' : 'shell.verdict.at_once.plain');
    return t('shell.lead');
  }

  #drawState() {
    const { t } = this.#host.words;
    const running = this.#run !== null;
    this.#composer.set({ running, ready: this.#ready });
    this.#tools.set({ whole: this.#ndjson !== '' });
    const place = running ? this.#run.bundle.wait : null;
    if (place > 0) this.#composer.say(t('shell.wait', { place }));
    else if (running) this.#composer.say(t('shell.running'));
    else if (this.#done) this.#composer.say(t('shell.done'));
    else this.#composer.say(this.#ready ? '' : t(this.#server.key, this.#server.args));
  }

  #badge(origin) {
    const { words } = this.#host;
    const meta = this.#trace?.meta ?? {};
    const detail = [meta.target, meta.device_name ?? meta.device, meta.dtype, meta.created?.slice(0, 10)]
      .filter(Boolean)
      .join(' · ');
    return badge(origin === 'recorded' ? 'recorded' : 'measured', words, detail);
  }

  #follow({ trace, round, position, total }) {
    if (!trace) return;
    this.#trace = trace;
    this.#upto = position === total ? null : round;
    this.#finished.show(trace, this.#upto);
    this.#questions.follow(trace, round);
  }

  #setWords() {
    this.#board.setWords();
    this.#compare.setWords();
    this.#finished.setWords();
    this.#questions.setWords();
    this.#tools.setWords();
    this.#drawVerdict();
    this.#drawState();
  }

  /** The server is away: what it was to compute is asked for when it is back. */
  #waitForServer() {
    this.#due = this.#trace !== null;
    if (!this.#ready) return;
    this.#ready = false;
    this.#poll();
  }

  /** Ask how the model is until it is ready. */
  async #poll() {
    const { server } = this.#host;
    try {
      this.#server = answered(await server.state());
      this.#ready = this.#server.ready;
    } catch (error) {
      console.info('server:', error.message);
      this.#server = { key: 'shell.state.away', args: {} };
    }
    this.#drawState();
    if (!this.#ready) setTimeout(() => this.#poll(), POLL);
    else if (this.#due) {
      this.#due = false;
      this.#ask();
    }
  }
}

/** The host gives undefined where the server failed; that is a failure here too. */
function answered(answer) {
  if (answer === undefined || answer === null) throw new Error('the server gave no answer');
  return answer;
}
