/** Connect: what a running server is; one prompt to it, as text that comes and then as tiles; a plain server beside it. */

import { h, newId, say } from '../dom.js';
import { firstSentence } from '../lab/experiments.js';
import { themeOf } from '../shell.js';
import { drawRunning } from '../tile.js';
import { makeAddress, refusal } from './address.js';
import { Replay } from './replay.js';
import { EXAMPLE, PRACTICE, TOKENS } from './settings.js';
import { Wire } from './wire.js';

const EVEN = 0.05; // as in spec_viz/ui/lanes.py

export class ConnectRoom {
  #root;
  #host;
  #ctx;
  #wire;
  #parts = {};
  #kept = { addresses: [PRACTICE, ''], prompt: EXAMPLE, tokens: 64, open: false };
  #looks = []; // what each server said of itself
  #looking = null; // {index, addresses}: who is being asked about itself
  #outcomes = []; // answers, each with the name of who gave it and whether that one speculates
  #live = null; // {text, tokens, seconds, who, stage} of what is being written
  #status = null; // {key, args}
  #alert = null;
  #theme = null; // the one the chart was drawn for

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#wire = new Wire(host, {
      line: (body) => this.#line(body),
      passing: ({ part }) => this.#part(part),
      said: ({ key, args }) => this.#tell(key, args),
      ended: (notice) => this.#ended(notice),
    });
    this.build();
  }

  take(text) {
    this.#wire.take(text);
  }

  // ------------------------------------------------------------ building

  build() {
    const { t } = this.#ctx;
    this.#parts.replay?.destroy();
    const off = refusal(this.#host, this.#ctx);
    const lead = h('p', { class: 'sv-lead' }, t('serve.connect.lead'));
    if (off) {
      this.#parts = {};
      this.#root.replaceChildren(lead, off);
      return;
    }
    const replay = h('div', { class: 'sv-serve-replay-body' });
    const parts = {
      connect: h('button', { class: 'sv-run', type: 'submit' }),
      send: h('button', { class: 'sv-run', type: 'submit' }),
      is: h('div', { class: 'sv-serve-is' }),
      said: h('p', { class: 'sv-x-said', role: 'status' }),
      alert: h('p', { class: 'sv-alert', role: 'alert' }),
      coming: h('div', { class: 'sv-serve-coming', 'aria-busy': 'true' }),
      verdict: h('p', { class: 'sv-lab-verdict sv-x-verdict', 'aria-live': 'polite' }),
      notes: h('p', { class: 'sv-l-about' }),
    };
    parts.addresses = this.#kept.addresses.map((value, index) => this.#addressOf(value, index));
    parts.ask = this.#makeAsk(parts);
    parts.beside = h('details', { class: 'sv-x-more', open: this.#kept.open }, h('summary', {}, t('serve.connect.beside')), h('p', { class: 'sv-help' }, t('serve.connect.beside.help')), parts.addresses[1].element);
    parts.beside.addEventListener('toggle', () => {
      this.#kept.open = parts.beside.open;
    });
    const where = h('form', { class: 'sv-serve-where', onSubmit: (event) => this.#submit(event, () => this.#connect()) }, parts.addresses[0].element, parts.connect, parts.beside);
    this.#parts = parts;
    this.#root.replaceChildren(
      lead,
      ...this.#practice(),
      where,
      parts.is,
      parts.ask,
      h('div', { class: 'sv-x-state' }, parts.said),
      parts.alert,
      parts.coming,
      parts.verdict,
      replay,
      parts.notes,
    );
    parts.replay = new Replay(replay, this.#host, this.#ctx, 'measured');
    this.#draw();
    this.#drawAnswers();
  }

  #addressOf(value, index) {
    const { t } = this.#ctx;
    const address = makeAddress({
      boot: this.#host.boot,
      t,
      key: index ? 'serve.connect.address.beside' : 'serve.connect.address',
      value: index ? null : value,
      changed: () => {
        this.#kept.addresses[index] = address.input.value.trim();
        // What was said of another server is said no more.
        this.#looks = [];
        this.#draw();
      },
    });
    if (value && (address.input.tagName === 'INPUT' || [...address.input.options].some((option) => option.value === value))) address.input.value = value;
    this.#kept.addresses[index] = address.input.value;
    return address;
  }

  /** How to have a server to connect to: only where the page runs on one's own computer. */
  #practice() {
    const { t } = this.#ctx;
    if (this.#host.boot.served.mode !== 'local') return [];
    const command = (text) => h('pre', { class: 'sv-serve-code' }, text);
    return [
      h(
        'details',
        { class: 'sv-x-more sv-serve-practice' },
        h('summary', {}, t('serve.practice')),
        h('p', { class: 'sv-help' }, t('serve.practice.install')),
        command('python -m spec_viz serve-local install'),
        h('p', { class: 'sv-help' }, t('serve.practice.start')),
        command('python -m spec_viz serve-local start ngram'),
        h('p', { class: 'sv-help' }, t('serve.practice.beside')),
        command('python -m spec_viz serve-local start baseline --port 8001'),
      ),
    ];
  }

  #makeAsk(parts) {
    const { t } = this.#ctx;
    const id = newId('prompt');
    const area = h('textarea', { class: 'sv-text', id, rows: 2 });
    area.value = this.#kept.prompt;
    area.addEventListener('input', () => {
      this.#kept.prompt = area.value;
      this.#draw();
    });
    const select = h('select', { class: 'sv-select', 'aria-label': t('serve.tokens') }, ...TOKENS.map((value) => h('option', { value }, t('serve.tokens.most', { tokens: value }))));
    select.value = String(this.#kept.tokens);
    select.addEventListener('change', () => {
      this.#kept.tokens = Number(select.value);
    });
    return h(
      'form',
      { class: 'sv-serve-ask', hidden: true, onSubmit: (event) => this.#submit(event, () => this.#send()) },
      h('label', { class: 'sv-field-name', for: id }, t('serve.connect.prompt')),
      area,
      h('div', { class: 'sv-serve-go' }, parts.send, select),
    );
  }

  #submit(event, act) {
    event.preventDefault();
    if (this.#wire.on) this.#wire.stop();
    else act();
  }

  // ------------------------------------------------------------ asking

  #connect() {
    const addresses = this.#kept.addresses.filter(Boolean);
    if (!addresses.length) return;
    // The answers of before stay until another question is sent.
    this.#looks = [];
    this.#alert = null;
    this.#looking = { index: 0, addresses };
    this.#lookNext();
  }

  #lookNext() {
    const { index, addresses } = this.#looking;
    this.#tell('serve.connect.looking', { address: addresses[index] });
    this.#wire.start({ look: { address: addresses[index] } });
    this.#draw();
  }

  #send() {
    if (!this.#looks.length || !this.#kept.prompt.trim()) return;
    this.#outcomes = [];
    this.#alert = null;
    this.#live = null;
    this.#tell('serve.connect.sent');
    const servers = this.#looks.map(({ address, model }) => ({ address, model }));
    this.#wire.start({ ask: { prompt: this.#kept.prompt, max_tokens: this.#kept.tokens, servers } });
    this.#draw();
    this.#drawAnswers();
  }

  #line({ look, outcome }) {
    if (look) this.#looks.push(look);
    if (!outcome) return;
    this.#outcomes.push({ ...outcome, name: this.#nameOf(outcome.who), speculates: this.#looks[outcome.who]?.speculates !== false });
    this.#live = null;
    this.#drawAnswers();
  }

  #part(part) {
    this.#live = part;
    this.#status = null;
    this.#draw();
  }

  #ended(notice) {
    this.#live = null;
    this.#tell(null);
    if (notice) this.#alert = notice;
    const looking = this.#looking;
    this.#looking = null;
    if (looking && !notice && looking.index + 1 < looking.addresses.length && this.#looks.length === looking.index + 1) {
      this.#looking = { ...looking, index: looking.index + 1 };
      this.#lookNext();
      return;
    }
    this.#draw();
    if (looking && this.#looks.length) this.#parts.ask?.querySelector('textarea').focus();
  }

  // ------------------------------------------------------------ what is seen

  #tell(key, args = {}) {
    this.#status = key ? { key, args } : null;
    this.#draw();
  }

  #draw() {
    const { t, number } = this.#ctx;
    const parts = this.#parts;
    if (!parts.connect) return;
    const looking = this.#wire.on && this.#looking !== null;
    const asking = this.#wire.on && !looking;
    say(parts.connect, t(looking ? 'control.stop' : 'serve.connect'));
    say(parts.send, t(asking ? 'control.stop' : 'serve.connect.send'));
    parts.connect.classList.toggle('sv-run--stop', looking);
    parts.send.classList.toggle('sv-run--stop', asking);
    parts.connect.setAttribute('aria-disabled', String(asking || !this.#kept.addresses[0]));
    parts.send.setAttribute('aria-disabled', String(looking || !this.#kept.prompt.trim()));
    parts.ask.hidden = !this.#looks.length;
    parts.is.replaceChildren(...this.#looks.map((look) => this.#isOf(look)));
    say(parts.said, this.#status ? t(this.#status.key, this.#status.args) : '');
    say(parts.alert, this.#alert ? t(this.#alert.key, this.#alert.args) : '');
    parts.coming.hidden = this.#live === null;
    if (this.#live === null) return;
    const { who, text, tokens, seconds, stage } = this.#live;
    const running = h('p', { class: 'sv-serve-text' });
    drawRunning(running, text);
    const facts = { name: this.#nameOf(who), tokens, seconds: number(seconds, 1) };
    parts.coming.replaceChildren(h('p', { class: 'sv-help' }, t(`serve.stage.${stage}`, facts)), ...(text ? [running] : []));
  }

  /** What a server said of itself, in sentences. */
  #isOf({ address, version, models, model, context, speculates, counters, tells, ids }) {
    const { t } = this.#ctx;
    const what = { true: 'yes', false: 'no', null: 'unknown' }[String(speculates)];
    const known = speculates === false ? 'plain' : ids ? (tells ?? 'unsure') : 'no_ids';
    const lines = [
      t(version ? 'serve.is' : 'serve.is.other', { address, version: version ?? '', model }),
      models.length > 1 ? t('serve.is.models', { models: models.join(', ') }) : '',
      context ? t('serve.is.context', { context }) : '',
      t(`serve.is.speculates.${what}`),
      t(`serve.is.tells.${known}`),
      counters ? '' : t('serve.is.no_counters'),
    ];
    return h('p', {}, h('b', {}, lines[0]), ' ', lines.slice(1).filter(Boolean).join(' '));
  }

  #nameOf(who) {
    const address = this.#looks[who]?.address ?? '';
    return address.replace(/^https?:\/\//, '');
  }

  #drawAnswers() {
    const { t } = this.#ctx;
    const parts = this.#parts;
    if (!parts.replay) return;
    if (!this.#outcomes.length) {
      parts.replay.clear();
      say(parts.verdict, '');
      say(parts.notes, '');
      return;
    }
    parts.replay.show(this.#outcomes, null);
    const [first, rest] = firstSentence(this.#verdict());
    parts.verdict.replaceChildren(first, rest && h('span', {}, rest));
    const notes = [
      this.#outcomes.some(({ shared }) => shared) ? t('serve.connect.shared') : '',
      this.#outcomes.some(({ source }) => source === 'counters') ? t('serve.connect.counters') : '',
    ];
    parts.notes.replaceChildren(notes.filter(Boolean).join(' '), ' ', this.#ctx.link('compare', 'serve.connect.more'));
    this.#drawChart();
  }

  async #drawChart() {
    const { server, words, state } = this.#host;
    const theme = themeOf(state);
    const came = this.#outcomes.map(({ name, speculates, arrivals }) => [name, speculates, arrivals]);
    try {
      const answer = await server.served({ came, language: words.lang, theme });
      this.#theme = theme;
      this.#parts.replay?.chart(answer?.chart ?? null);
    } catch (error) {
      console.error(error);
    }
  }

  /** With two whole answers: which wrote faster after its first token. */
  #verdict() {
    const { t, number } = this.#ctx;
    const [one, two] = this.#outcomes;
    if (!one?.token_ms || !two?.token_ms || one.problem || two.problem) return '';
    const times = two.token_ms / one.token_ms;
    const key = Math.abs(times - 1) < EVEN ? 'even' : times > 1 ? 'faster' : 'slower';
    const same = one.text === two.text ? 'serve.connect.same' : 'serve.connect.other';
    const facts = { one: one.name, two: two.name, ms: number(one.token_ms, 0), other: number(two.token_ms, 0), times: number(times, 2) };
    return `${t(`serve.connect.${key}`, facts)} ${t(same)}`;
  }

  draw() {
    if (this.#outcomes.length && this.#theme !== themeOf(this.#host.state)) this.#drawChart();
  }

  arrive() {
    this.draw();
  }
}
