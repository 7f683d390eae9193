/**
 * A lesson, step by step: words, a guess, a figure. One key goes on: first through the figure's moves, then to the next
 * step.
 */

import { h, say } from '../dom.js';
import { badge } from '../numbers.js';
import { makeAsk } from './ask.js';
import { makeContents } from './contents.js';
import { tracesOf } from './figures.js';
import { makeHandout } from './handout.js';
import { Memory } from './memory.js';
import { mountPointers } from './pointers.js';
import { block } from './prose.js';
import { makeStage } from './stage.js';

const TYPING = 'input:not([type="checkbox"]):not([type="radio"]), textarea, select, [contenteditable="true"]';
// Keys the board would take for a figure that still waits for a guess.
const OF_BOARD = new Set(['home', 'end', 'arrowup', 'arrowdown', 'r', 'p']);
// What a clicker sends. In the presenter view it goes on and back wherever the focus is.
const CLICKER = new Set(['PageDown', 'PageUp']);
const PRESSING = 'button, a[href], summary, [role="button"], [role="switch"], label, input';

/** options = {lesson, texts: Map, step: id | null, present, leave(ndjson), moved({step, present}), home()}. */
export class Player {
  #root;
  #host;
  #options;
  #lesson;
  #texts;
  #memory;
  #ctx;
  #keep = new Map();
  #group = null; // what a class changes about the guess of this step
  #index = 0;
  #stage = null;
  #ask = null;
  #pointers = null;
  #contents = null;
  #nudged = false;
  #present = false;
  #parts = {};
  #handout = null;
  #theme = null;
  #tidy = new AbortController();

  constructor(root, host, options) {
    this.#root = root;
    this.#host = host;
    this.#options = options;
    this.#memory = new Memory(options.lesson.slug);
    const { words } = host;
    this.#ctx = {
      t: words.t,
      lang: () => words.lang,
      number: (value, digits, fixed) => words.number(value, digits, fixed),
      badge: (origin, source) => badge(origin === 'live' ? 'measured' : origin, words, detailOf(source)),
    };
    const signal = { signal: this.#tidy.signal };
    document.addEventListener('keydown', (event) => this.#onKey(event), { ...signal, capture: true });
    root.addEventListener('focusin', ({ target }) => this.#uncover(target), signal);
    window.addEventListener('beforeprint', () => this.#layOut(), signal);
    window.addEventListener('afterprint', () => this.#takeAway(), signal);
    this.#show(options.lesson, options.texts);
    const wanted = this.#lesson.steps.findIndex((step) => step.id === options.step);
    this.#setPresent(options.present);
    this.open(Math.max(wanted, 0));
  }

  get step() {
    return this.#lesson.steps[this.#index];
  }

  /** The same lesson in another language: the same step, the same place in its figure. */
  setLesson(lesson, texts) {
    const at = this.#stage.at;
    const untouched = at === this.#stage.first;
    this.#show(lesson, texts);
    this.open(this.#index, { at: untouched ? 'first' : at });
  }

  /** To the step of this name. */
  goTo(id) {
    const index = this.#lesson.steps.findIndex((step) => step.id === id);
    if (index >= 0 && index !== this.#index) this.open(index, { focus: true });
  }

  /** The step once more, as it stands: a class has begun or ended. */
  again() {
    this.open(this.#index, { at: this.#stage.at });
  }

  /** The run on the server sent something. */
  take(text) {
    this.#stage?.take(text);
  }

  /** The page's colours have changed. */
  repaint() {
    this.#stage?.repaint();
  }

  destroy() {
    this.#tidy.abort();
    this.#host.classroom.askNothing();
    this.#takeAway();
    this.#stage?.destroy();
    delete document.documentElement.dataset.present;
    this.#root.replaceChildren();
  }

  // ------------------------------------------------------------ frame

  #show(lesson, texts) {
    this.#lesson = lesson;
    this.#texts = texts;
    const { t } = this.#ctx;
    const quiet = (key, onClick, more = {}) =>
      h('button', { class: 'sv-l-quiet', type: 'button', onClick, ...more }, t(key));
    this.#contents = makeContents(
      lesson,
      { ctx: this.#ctx, memory: this.#memory },
      {
        open: (index) => !this.#host.classroom.holds() && this.open(index, { focus: true }),
        forget: () => {
          this.#memory.forget();
          this.open(this.#host.classroom.holds() ? this.#index : 0, { focus: true });
        },
      },
    );
    const parts = {
      step: h('section', { class: 'sv-l-step' }),
      back: quiet('lesson.back', () => this.back(), { 'aria-keyshortcuts': 'ArrowLeft' }),
      next: h('button', {
        class: 'sv-run',
        type: 'button',
        'aria-keyshortcuts': 'ArrowRight Space',
        onClick: () => this.next(),
      }),
      skip: quiet('lesson.skip', () => this.#turn(1), { class: 'sv-l-quiet sv-l-skip' }),
      present: quiet('lesson.present', () => this.#setPresent(!this.#present), { class: 'sv-l-quiet sv-l-presenter' }),
      notes: h('details', { class: 'sv-l-notes' }, h('summary', {}, t('lesson.notes')), h('div')),
    };
    this.#parts = parts;
    const tools = h(
      'div',
      { class: 'sv-l-tools sv-l-head-tools' },
      quiet('lesson.all', () => this.#options.home()),
      parts.present,
      this.#host.classroom.opener(),
      quiet('lesson.print', () => window.print()),
    );
    this.#root.replaceChildren(
      h(
        'article',
        { class: 'sv-l-player' },
        h(
          'header',
          { class: 'sv-l-head' },
          h(
            'p',
            { class: 'sv-l-course' },
            h('b', {}, t('lesson.number', { number: lesson.number })),
            ` ${lesson.title}`,
          ),
          tools,
        ),
        h('div', { class: 'sv-l-where' }, this.#contents.element, this.#contents.bar),
        parts.step,
        h(
          'footer',
          { class: 'sv-l-nav' },
          parts.back,
          parts.next,
          parts.skip,
          h('p', { class: 'sv-l-hint' }, t('lesson.keys')),
        ),
        parts.notes,
      ),
    );
  }

  // ------------------------------------------------------------ a step

  /** Show step `index`, its figure at its beginning, its end ('last') or after some moves. */
  open(index, { at = 'first', focus = false } = {}) {
    this.#stage?.destroy();
    this.#index = index;
    this.#nudged = false;
    const { step } = this;
    const { t } = this.#ctx;
    if (!this.#keep.has(step.id)) this.#keep.set(step.id, {});
    const { classroom } = this.#host;
    const group = step.ask
      ? classroom.ask(this.#lesson.slug, step, this.#ctx, { revealed: () => this.#settle(), changed: () => this.#drawLock() })
      : classroom.askNothing();
    this.#group = group;
    this.#ask = step.ask
      ? makeAsk(
          step,
          { ctx: this.#ctx, memory: this.#memory, group },
          { committed: () => this.#reveal(), again: () => this.#hide() },
        )
      : null;
    const scene = {
      host: this.#host,
      lesson: this.#lesson,
      step,
      texts: this.#texts,
      ctx: this.#ctx,
      memory: this.#memory,
      keep: this.#keep.get(step.id),
    };
    this.#stage = makeStage({ ...scene, asks: this.#ask !== null, live: true, moved: () => this.#drawNav() });
    const title = h('h1', { class: 'sv-l-title', tabindex: '-1' }, step.title);
    const lead = index === 0 ? h('p', { class: 'sv-l-question-lead' }, this.#lesson.question) : null;
    const lock = h('p', { class: 'sv-l-lock' });
    const words = h('div', { class: 'sv-l-words' }, lead, title, block(step.html), this.#ask?.element);
    const figure = h('div', { class: 'sv-l-figure-side' }, lock, this.#stage.element);
    this.#parts.lock = lock;
    this.#parts.step.className = `sv-l-step sv-l-step--${step.figure.kind}`;
    this.#parts.step.replaceChildren(words, figure);
    this.#pointers = mountPointers(this.#parts.step, {
      lesson: this.#lesson,
      ctx: this.#ctx,
      find: (ref, to) => this.#stage.find(ref, to),
    });
    const notes = this.#parts.notes;
    notes.lastChild.replaceChildren(step.note ? block(step.note) : t('lesson.notes.none'));
    if (this.#ask && !this.#ask.open) this.#stage.go(this.#stage.total);
    if (at === 'last' && !this.#ask?.open) this.#stage.go(this.#stage.total);
    else if (typeof at === 'number' && !this.#ask?.open) this.#stage.go(at);
    if (index === this.#lesson.steps.length - 1) this.#memory.finish(step.id);
    this.#drawLock();
    this.#drawNav();
    this.#contents.draw(index);
    this.#tellMoved();
    group?.draw();
    if (!focus) return;
    title.focus({ preventScroll: true });
    if (this.#root.getBoundingClientRect().top < 0) this.#root.scrollIntoView({ block: 'start' });
  }

  #reveal() {
    this.#drawLock();
    this.#stage.go(this.#stage.total);
    this.#drawNav();
  }

  /** The class sees the answer, whether this page has guessed or not. */
  #settle() {
    if (!this.#ask?.open) return;
    this.#ask.settle();
    this.#reveal();
  }

  #hide() {
    this.#stage.go(0);
    this.#drawLock();
    this.#drawNav();
  }

  /** Forward: the guess, then the figure's moves, then the next step. A second press goes on without a guess. */
  next() {
    if (this.#ask?.open && (!this.#nudged || this.#ask.held)) {
      this.#nudged = true;
      this.#ask.nudge();
      // Before a class the next press must go on: in a field the arrows of a clicker would choose or stand still.
      if (!this.#present) this.#ask.focus();
    } else if (this.#ask?.open) {
      this.#ask.skip();
      this.#reveal();
      this.#parts.step.querySelector('.sv-l-truth').focus();
    } else if (this.#stage.at < this.#stage.total) this.#stage.go(this.#stage.at + 1);
    else this.#turn(1);
  }

  back() {
    if (!this.#ask?.open && this.#stage.at > this.#stage.first && !(this.#ask && this.#stage.at === this.#stage.total))
      this.#stage.go(this.#stage.at - 1);
    else this.#turn(-1);
  }

  #turn(by) {
    if (this.#host.classroom.holds()) return;
    const to = this.#index + by;
    if (by > 0) this.#memory.finish(this.step.id);
    if (to < 0) return;
    if (to >= this.#lesson.steps.length) this.#options.home();
    else this.open(to, { at: by < 0 ? 'last' : 'first', focus: true });
  }

  #drawLock() {
    const locked = this.#ask?.open === true;
    this.#stage.lock(locked);
    this.#parts.lock.hidden = !locked;
    say(this.#parts.lock, this.#ctx.t(this.#group?.held ? 'classroom.guess.lock' : 'lesson.ask.lock'));
  }

  #drawNav() {
    const { t } = this.#ctx;
    if (!this.#stage) return;
    const last = this.#index === this.#lesson.steps.length - 1;
    const moves = this.#stage.total - this.#stage.at;
    say(this.#parts.next, t(last && !moves ? 'lesson.finish' : 'lesson.next'));
    this.#parts.back.setAttribute('aria-disabled', String(this.#index === 0 && this.#stage.at === this.#stage.first));
    this.#parts.skip.hidden = last || !(moves > 0 || this.#ask?.open);
  }

  // ------------------------------------------------------------ keys

  #onKey(event) {
    const { target, key } = event;
    if (this.#root.offsetParent === null && !this.#present) return;
    if (document.querySelector('dialog:modal')) return;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (key === 'Escape') {
      this.#escape(event);
      return;
    }
    const inField = target.closest?.(TYPING) || target.getAttribute?.('role') === 'slider';
    if (inField && !(this.#present && CLICKER.has(key))) return;
    const does = this.#meaning(event);
    if (!does) {
      if (this.#ask?.open && OF_BOARD.has(key.toLowerCase())) event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    does();
  }

  #meaning({ target, key }) {
    const onTile = target.closest?.('.sv-board-scroll');
    const onRadio = target.matches?.('input[type="radio"]');
    const letter = key.length === 1 ? key.toLowerCase() : key;
    if (key === 'ArrowRight' && !onRadio) return () => this.next();
    if (key === 'ArrowLeft' && !onRadio) return () => this.back();
    if (key === 'PageDown' && this.#present) return () => this.next();
    if (key === 'PageUp' && this.#present) return () => this.back();
    if (key === ' ' && (onTile || !target.closest?.(PRESSING))) return () => this.next();
    if (this.#present && letter === 'n') return () => this.#toggleNotes();
    if (this.#ask?.open) return null;
    if (key === 'Home' && this.#stage.total && !onRadio) return () => this.#stage.go(0);
    if (key === 'End' && this.#stage.total && !onRadio) return () => this.#stage.go(this.#stage.total);
    return this.#stage.keys[letter] ?? null;
  }

  /** What has the focus comes out from under the buttons that stay at the lower edge: to a browser it is in sight there. */
  #uncover(target) {
    const nav = this.#root.querySelector('.sv-l-nav');
    const cover = nav.getBoundingClientRect().top;
    const { bottom, height } = target.getBoundingClientRect();
    if (!nav.contains(target) && bottom > cover && height < cover / 2) target.scrollIntoView({ block: 'nearest' });
  }

  #toggleNotes() {
    this.#parts.notes.open = !this.#parts.notes.open;
  }

  /** Close what is open first; then leave. */
  #escape(event) {
    const onTile = event.target.closest?.('.sv-board-scroll, .sv-inspector');
    if (onTile) return; // the board lets go of its tile
    event.preventDefault();
    event.stopPropagation();
    if (this.#pointers.close() || this.#contents.close()) return;
    if (this.#present) this.#setPresent(false);
    else if (!this.#host.classroom.leads) // a clicker's Esc takes no teacher away from the class
      this.#options.leave(this.step.figure.ndjson ?? this.#texts.get(tracesOf(this.step.figure)[0]) ?? null);
  }

  // ------------------------------------------------------------ presenter view, handout

  #setPresent(present) {
    this.#present = present === true;
    if (this.#present) document.documentElement.dataset.present = '1';
    else delete document.documentElement.dataset.present;
    say(this.#parts.present, this.#ctx.t(this.#present ? 'lesson.present.leave' : 'lesson.present'));
    if (this.#stage) this.#tellMoved();
  }

  #tellMoved() {
    this.#options.moved({ step: this.step.id, present: this.#present });
  }

  #layOut() {
    if (this.#handout || this.#root.offsetParent === null) return;
    this.#handout = makeHandout({
      host: this.#host,
      lesson: this.#lesson,
      texts: this.#texts,
      ctx: this.#ctx,
      memory: this.#memory,
    });
    document.querySelector('.sv-app').append(this.#handout.element);
    this.#theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = 'light'; // paper is white
  }

  #takeAway() {
    if (!this.#handout) return;
    this.#handout.destroy();
    this.#handout = null;
    document.documentElement.dataset.theme = this.#theme;
  }
}

/** Where and when: for the badge's tooltip. */
function detailOf(source) {
  const about = source?.meta ?? source?.conditions;
  if (!about) return '';
  return [about.target, about.device_name ?? about.device, about.dtype, about.created?.slice(0, 10)]
    .filter(Boolean)
    .join(' · ');
}
