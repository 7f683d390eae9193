/** A class on this page: whether there is one, who leads it, where it stands, and what the places must know of it. */

import { joinForm, otherTab, plain, showPoster, studentLine, teacherBar } from './classroom/bar.js';
import { makeGuesses } from './classroom/guesses.js';
import { forgetLed, keepLed, readLed, watchLed } from './classroom/led.js';
import { Line, Refused, problemOf } from './classroom/line.js';
import { h, say } from './dom.js';
import { readAddress } from './lesson/address.js';
import { asRecorded } from './run.js';

const NAME = 'class'; // in the address
const KEPT = 'specviz.class'; // in this tab: what makes a page that is loaded again the same teacher or member
const LINGER = 6000; // ms that a passing remark stays
const AGAIN = 2000; // ms until what the server did not hear is said again

export class Classroom {
  #host;
  #pass = null; // {code, member, token?, guesses: {lesson/step: value}} while a class is on
  #line = null;
  #view = null; // the class as the server last told it
  #lost = false;
  #ended = null; // {key, args}: why there is no class any more
  #again = false; // whether the code of another class may help
  #remark = null; // {key, args}
  #remarked = null;
  #at = { lesson: null, step: null }; // where this page's player is
  #gone = null; // the place of the class this page went to last
  #arrived = false; // whether it has been there since
  #led = ''; // the step that this page, as the teacher's, told last
  #run = null; // the run of the class that was opened here
  #queue = []; // what the server has not heard yet, in order
  #flushing = false;
  #asking = null; // the guess that stands on the page
  #elsewhere = null; // the pass of a class that another tab of this browser leads, or led
  #bar = null;
  #opener = null;
  #door = null;
  #voice = h('p', { class: 'sv-hush', role: 'status' });
  #frame = h('section', { class: 'sv-class', hidden: true });

  constructor(host) {
    this.#host = host;
    this.element = h('div', { class: 'sv-class-holder' }, this.#voice, this.#frame);
  }

  /** Go on with the class of the address or of this tab. */
  start() {
    this.#host.state.listen((changed) => this.#heard(changed));
    watchLed((pass) => this.#ledElsewhere(pass));
    const [kept, led] = [readKept(), readLed()];
    const code = plain(new URLSearchParams(location.search).get(NAME) ?? kept?.code ?? '');
    if (code && kept?.code === code) this.#begin(kept);
    else if (led && (!code || code === led.code)) this.#offer(led, code);
    else if (code) this.#begin(newcomer(code));
  }

  // ------------------------------------------------------------ what lessons ask

  /** A button that opens a class at the player's step; it hides while one is on. */
  opener() {
    const { t } = this.#host.words;
    this.#opener = h('button', { class: 'sv-l-quiet sv-class-opener', type: 'button', onClick: () => this.#open() }, t('classroom.open'));
    this.#opener.hidden = this.#isTaken;
    return this.#opener;
  }

  /** A form to join by code; it hides while a class is on. */
  door() {
    this.#door = joinForm(this.#host.words, (code) => this.#begin(newcomer(code)));
    this.#door.hidden = this.#isTaken;
    return this.#door;
  }

  /** The player has come to a step, or there is none (nulls). */
  moved(lesson, step) {
    this.#at = { lesson, step };
    if (this.#teaches && lesson) this.#lead();
    this.#draw();
  }

  /** Whether the class keeps this page at its step; then it is said. */
  holds() {
    const holds = this.#follows && !this.#lost && this.#isHere();
    if (holds) this.#say('classroom.held');
    return holds;
  }

  /**
   * A step with a guess stands on the page: what a class changes about it, null without a class. `revealed()` is called
   * when everybody is to see the answer, `changed()` when who shows it may have changed. Returns {element, fresh, held,
   * leads, guess, put(value), reveal(), draw()}: `fresh`: an earlier guess does not count here; `held`: after the guess
   * the answer waits for the teacher. Nothing is revealed before the first draw(), when the page has the step.
   */
  ask(lesson, step, ctx, { revealed, changed }) {
    this.#asking = null;
    if (!this.#pass) return null;
    const guesses = makeGuesses(step, ctx, { show: revealed });
    const asking = { lesson, step: step.id, guesses, revealed, changed, settled: false };
    this.#asking = asking;
    const shown = () => this.#isShown(asking);
    const waits = () => this.#holdsAnswers && !shown();
    const mine = () => this.#pass?.guesses[placeOf(asking)];
    return {
      element: guesses.element,
      get fresh() {
        return !shown();
      },
      get held() {
        return waits();
      },
      leads: this.#teaches,
      get guess() {
        return mine();
      },
      put: (value) => this.#guess(asking, value),
      reveal: () => this.#reveal(asking),
      draw: () => this.#drawAsking(),
    };
  }

  /** Whether this page leads a class. */
  get leads() {
    return this.#teaches;
  }

  /** No guess stands on the page. */
  askNothing() {
    this.#asking = null;
  }

  // ------------------------------------------------------------ beginning and end

  /** Whether there is a class here or on offer, so that none is opened or joined beside it. */
  get #isTaken() {
    return this.#pass !== null || this.#elsewhere !== null;
  }

  get #teaches() {
    return Boolean(this.#pass?.token);
  }

  /** A student whom the teacher leads. */
  get #follows() {
    return this.#pass !== null && !this.#teaches && this.#view?.follow === true;
  }

  /** Before the server has said otherwise, a student's page takes it that the teacher leads. */
  get #holdsAnswers() {
    return this.#pass !== null && !this.#teaches && this.#view?.follow !== false;
  }

  async #open() {
    const { boot } = this.#host;
    try {
      const answer = await fetch(`${boot.static}class`, { method: 'POST', body: JSON.stringify(this.#at) });
      if (!answer.ok) throw await problemOf(answer);
      const { code, token } = await answer.json();
      this.#led = placeOf(this.#at);
      this.#begin({ ...newcomer(code), token });
      this.#poster();
    } catch (error) {
      if (!(error instanceof Refused)) console.error(error);
      this.#close(error instanceof Refused ? error.said : { key: 'classroom.error.away', args: {} });
    }
  }

  #begin(pass) {
    this.#line?.stop();
    this.#pass = pass;
    this.#elsewhere = null;
    this.#view = null;
    this.#ended = null;
    this.#again = false;
    this.#gone = null;
    this.#keep();
    if (pass.token) keepLed(pass);
    writeCode(pass.code);
    this.#build();
    this.#line = new Line(this.#host.boot.static, pass, {
      stands: (view) => this.#stands(view),
      lost: () => this.#set({ lost: true }),
      found: () => this.#set({ lost: false }),
      over: (error) => this.#over(error),
    });
    this.#line.start();
    this.#host.lessons?.again();
  }

  /** The server knows no such class, or not any more. */
  #over(error) {
    const none = error.key === 'classroom.error.none';
    const again = none && !this.#teaches;
    const gone = { key: this.#teaches ? 'classroom.over.teacher' : 'classroom.gone' };
    this.#close(none && this.#view ? gone : error, { again });
  }

  /** There is no class any more on this page; `why` is said until it is closed. */
  #close(why = null, { again = false } = {}) {
    const code = this.#pass?.code ?? '';
    if (this.#teaches) forgetLed(code);
    this.#drop();
    this.#ended = why && { key: why.key, args: { code, ...why.args } };
    this.#again = again;
    writeCode(null);
    this.#build();
    this.#host.lessons?.again();
  }

  #drop() {
    this.#line?.stop();
    this.#pass = null;
    this.#view = null;
    this.#queue = [];
    this.#lost = false;
    this.#led = '';
    forget();
  }

  #poster() {
    const { words, boot } = this.#host;
    const address = new URL(`?${NAME}=${this.#pass.code}`, location.origin + location.pathname);
    showPoster(words, this.#pass.code, address, boot.static);
  }

  /** This browser leads a class, from another tab or from one that was closed; `code` where the address names it. */
  async #offer(pass, code) {
    const on = await Line.isOn(this.#host.boot.static, pass);
    if (this.#pass) return;
    if (on) this.#lookOn(pass);
    else {
      forgetLed(pass.code);
      if (code) this.#begin(newcomer(code));
    }
  }

  /** Without the class, which may be led from here; null: without any. */
  #lookOn(pass) {
    this.#elsewhere = pass;
    if (!pass) writeCode(null);
    this.#build();
  }

  /** Another tab has begun to lead a class (its pass), or its class is over (null). */
  #ledElsewhere(pass) {
    if (this.#teaches && pass?.code === this.#pass.code) {
      this.#drop();
      this.#lookOn(pass);
      this.#host.lessons?.again();
    } else if (this.#elsewhere && pass?.code !== this.#elsewhere.code) this.#lookOn(null);
  }

  // ------------------------------------------------------------ the teacher

  #lead() {
    const place = placeOf(this.#at);
    if (place === this.#led && !this.#view?.board) return;
    this.#led = place;
    if (this.#view) this.#view = { ...this.#view, board: false };
    this.#tell('lead', this.#at);
  }

  #follow(follow) {
    if (this.#view) this.#view = { ...this.#view, follow };
    this.#tell('lead', { follow });
    this.#draw();
  }

  #reveal(asking) {
    if (!this.#teaches || this.#isShown(asking)) return;
    asking.settled = true;
    this.#tell('lead', { reveal: asking.step });
  }

  async #send() {
    const text = this.#host.finished?.() ?? '';
    if (!text) {
      this.#say('classroom.send.none');
      return;
    }
    this.#say('classroom.sending');
    const answer = await this.#line.tell('send', asRecorded(text));
    if (answer === null) this.#sayAway();
    else if (answer.error) this.#say(answer.error.key, answer.error.args);
    else {
      this.#say(this.#view?.follow === false ? 'classroom.sent.roam' : 'classroom.sent');
      this.#line.ask();
    }
  }

  async #end() {
    const answer = await this.#line.tell('end', '');
    if (answer === null) this.#sayAway();
    else this.#close({ key: 'classroom.over' });
  }

  #sayAway() {
    this.#say(this.#line.storeAway ? 'classroom.error.store' : 'classroom.error.away');
  }

  // ------------------------------------------------------------ the way to the server

  #guess(asking, value) {
    this.#pass.guesses[placeOf(asking)] = value;
    this.#keep();
    if (!this.#teaches && !this.#isShown(asking)) this.#tell('guess', { step: asking.step, value });
  }

  #tell(verb, body) {
    this.#queue.push([verb, JSON.stringify(body)]);
    this.#flush();
  }

  /** Say what is in the queue, in its order; what is not heard is said again. */
  async #flush() {
    if (this.#flushing) return;
    this.#flushing = true;
    while (this.#queue.length) {
      const [verb, body] = this.#queue[0];
      const answer = await this.#line.tell(verb, body);
      if (answer === null) await new Promise((wake) => setTimeout(wake, AGAIN));
      else this.#queue.shift();
      // Who guesses at the moment of the reveal comes too late, which the page shows anyway.
      if (answer?.error && answer.error.key !== 'classroom.error.shown') this.#say(answer.error.key, answer.error.args);
    }
    this.#flushing = false;
    this.#line?.ask();
  }

  #stands(view) {
    const first = this.#view === null;
    this.#view = view;
    if (!this.#teaches) this.#go(first);
    this.#drawAsking();
    this.#draw();
  }

  // ------------------------------------------------------------ a student follows

  /** To where the class is, when that has changed; who roams is only taken along when the lesson is not open yet. */
  #go(first) {
    const view = this.#view;
    const place = JSON.stringify([placeOf(view), view.board && view.sent]);
    if (!view.follow && !(first && !readAddress().lesson)) {
      this.#gone = null;
      return;
    }
    if (place === this.#gone) return;
    this.#gone = place;
    this.#arrived = false;
    if (view.board) this.#toRun(view.sent);
    else this.#toStep(view);
  }

  #toStep({ lesson, step }) {
    this.#host.state.set({ page: 'lessons' });
    this.#host.lessons.open({ lesson, step });
  }

  /** To the step of the class; it may have gone on since it was asked last. */
  async #back() {
    await this.#line.ask();
    if (this.#view) this.#toStep(this.#view);
  }

  async #toRun(id) {
    for (let tries = 0; tries < 3 && this.#view?.sent === id; tries += 1) {
      const text = await this.#line.run(id);
      if (text !== null) {
        this.#run = id;
        this.#host.state.set({ page: 'live' });
        this.#host.open(text);
        return;
      }
      await new Promise((wake) => setTimeout(wake, AGAIN));
    }
  }

  /** Whether the page shows what the class looks at. */
  #isHere() {
    const page = this.#host.state.get('page');
    if (this.#view.board) return page === 'live' && this.#run === this.#view.sent;
    return page === 'lessons' && placeOf(this.#at) === placeOf(this.#view);
  }

  #isShown({ lesson, step }) {
    return this.#view?.lesson === lesson && this.#view.revealed.includes(step);
  }

  // ------------------------------------------------------------ drawing

  #heard(changed) {
    if (changed.includes('lang')) this.#build();
    if (changed.includes('page') && this.#teaches && this.#host.state.get('page') === 'lessons' && this.#at.lesson) this.#lead();
    this.#draw();
  }

  #makeBar() {
    const { words } = this.#host;
    if (this.#teaches)
      return teacherBar(words, {
        show: () => this.#poster(),
        follow: (follow) => this.#follow(follow),
        send: () => this.#send(),
        end: () => this.#end(),
      });
    if (this.#elsewhere)
      return otherTab(words, {
        take: () => this.#begin(readLed() ?? this.#elsewhere),
        join: () => this.#begin(newcomer(this.#elsewhere.code)),
        leave: () => this.#lookOn(null),
      });
    const tell = {
      back: () => this.#back(),
      board: () => this.#toRun(this.#view.sent),
      leave: () => this.#close(),
      join: (code) => this.#begin(newcomer(code)),
    };
    return studentLine(words, tell, this.#ended?.key === 'classroom.error.none' ? this.#ended.args.code : '');
  }

  #build() {
    const { words } = this.#host;
    this.#bar = this.#makeBar();
    this.#frame.setAttribute('aria-label', words.t('classroom.title'));
    this.#frame.replaceChildren(this.#bar.element);
    if (this.#opener) this.#opener.hidden = this.#isTaken;
    if (this.#door) this.#door.hidden = this.#isTaken;
    this.#draw();
  }

  #set({ lost }) {
    this.#lost = lost;
    this.#draw();
  }

  /** A passing remark. */
  #say(key, args = {}) {
    clearTimeout(this.#remarked);
    this.#remark = { key, args: { code: this.#pass?.code ?? '', ...args } };
    this.#remarked = setTimeout(() => {
      this.#remark = null;
      this.#draw();
    }, LINGER);
    this.#draw();
  }

  #draw() {
    const on = this.#isTaken || this.#ended !== null;
    this.#frame.hidden = !on;
    const view = this.#view;
    const here = view !== null && this.#isHere();
    if (here) this.#arrived = true;
    const said = on ? this.#said(here) : '';
    say(this.#voice, said);
    if (!on) return;
    if (this.#teaches)
      this.#bar.draw({
        code: this.#pass.code,
        members: view?.members ?? null,
        follow: view?.follow ?? true,
        place: this.#host.state.get('page'),
        said,
      });
    else {
      const unseen = view?.sent && this.#run !== view.sent;
      this.#bar.draw({
        said,
        away: view !== null && !view.board && !here,
        run: view !== null && (view.board ? !here : unseen),
        over: this.#ended !== null,
        // Where the page has a form for it already, that one does.
        again: this.#again && !this.#door?.checkVisibility(),
      });
    }
  }

  #said(here) {
    const { t } = this.#host.words;
    const sentence = ({ key, args = {} }) => t(key, args);
    if (this.#ended) return sentence(this.#ended);
    if (this.#elsewhere) return t('classroom.elsewhere', { code: this.#elsewhere.code });
    if (this.#lost) return t(this.#line.storeAway ? 'classroom.waits' : 'classroom.lost');
    if (this.#remark) return sentence(this.#remark);
    if (!this.#view) return t('classroom.joining', { code: this.#pass.code });
    if (this.#follows && this.#arrived && !here) return t('classroom.student.away', { code: this.#pass.code });
    const way = this.#view.follow ? 'follow' : 'roam';
    return t(this.#teaches ? `classroom.teacher.${way}` : `classroom.student.${way}`, { code: this.#pass.code });
  }

  /** The guesses of the step on the page; and the answer, once everybody is to see it. */
  #drawAsking() {
    const asking = this.#asking;
    if (!asking || !this.#view) return;
    const shown = this.#isShown(asking);
    const members = this.#teaches ? this.#view.members : null;
    const tally = this.#view.lesson === asking.lesson ? (this.#view.guesses[asking.step] ?? []) : [];
    asking.guesses.draw({ tally, members, shown });
    asking.changed();
    const guessed = !this.#teaches && this.#pass.guesses[placeOf(asking)] !== undefined;
    const due = shown ? this.#teaches || this.#view.follow : guessed && !this.#holdsAnswers;
    if (!due || asking.settled) return;
    asking.settled = true;
    asking.revealed();
  }

  #keep() {
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(this.#pass));
    } catch (error) {
      console.info('class not kept:', error.name);
    }
  }
}

function placeOf({ lesson, step }) {
  return `${lesson}/${step}`;
}

/** A pass under a name that says nothing of anybody. */
function newcomer(code) {
  const name = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return { code, member: name, guesses: {} };
}

function readKept() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? 'null');
    return typeof kept?.code === 'string' && typeof kept.member === 'string' && kept.guesses ? kept : null;
  } catch (error) {
    console.info('no class read:', error.name);
    return null;
  }
}

function forget() {
  try {
    sessionStorage.removeItem(KEPT);
  } catch (error) {
    console.info('class not forgotten:', error.name);
  }
}

function writeCode(code) {
  const url = new URL(location.href);
  if (code === null) url.searchParams.delete(NAME);
  else url.searchParams.set(NAME, code);
  if (url.href !== location.href) history.replaceState(history.state, '', url.href);
}
