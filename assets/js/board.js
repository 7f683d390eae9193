/**
 * The tile board: one row a round, drawn as lines arrive, stepped through by hand, forward and back.
 * A row's tiles are its drafts in order and then the target's own token. One listener serves all tiles.
 */

import { mountInspector } from './inspector.js';
import { mountLegend } from './legend.js';
import { OWN, address, drawRow, isJudged, isSeen, paintRow, toggleMask } from './row.js';
import { isLossy, judgement, ownToken, ruleHeader } from './rule.js';
import { Steps } from './steps.js';
import { icon, make, quote } from './tile.js';
import { ROOT, childrenOf, depthOf, isTree } from './tree.js';

const PACE = 1100;
const BUTTONS = ['home', 'back', 'play', 'next', 'reveal', 'end'];

/**
 * ctx = {t(key, args), lang(), badge?(origin) -> Node, moved?({trace, round, position, total})}.
 * `moved` hears every change of position, so that other panels can follow the round.
 */
export function mountBoard(root, ctx) {
  const board = new Board(root, ctx);
  return {
    setBundle: (bundle, options) => board.setBundle(bundle, options),
    refresh: () => board.refresh(),
    bring: () => board.bring(),
    step: (by) => board.step(by),
    home: () => board.go(0),
    end: () => board.end(),
    reveal: () => board.reveal(),
    play: () => board.play(),
    escape: () => board.escape(),
    why: () => board.why(),
    setWords: () => board.setWords(),
    destroy: () => board.destroy(),
  };
}

class Board {
  #root;
  #ctx;
  #bundle = null;
  #index = 0;
  #trace = null;
  #live = false;
  #rows = [];
  #steps = new Steps();
  #position = null; // null: at the end, and staying there as rounds arrive
  #picked = null; // {round, node}: the tile under the cursor of the keyboard
  #pinned = false;
  #timer = null;
  #tidy = new AbortController();

  constructor(root, ctx) {
    this.#root = root;
    this.#ctx = ctx;
    root.classList.add('sv-board');
    this.#build();
    this.#listen();
    this.setWords();
  }

  // ------------------------------------------------------------ what is shown

  setBundle(bundle, { live = false } = {}) {
    const fresh = bundle !== this.#bundle;
    this.#bundle = bundle;
    this.#live = live;
    if (fresh) this.#index = 0;
    this.refresh();
  }

  /** Draw what has arrived since the last call. */
  refresh() {
    const traces = this.#bundle?.traces ?? [];
    if (this.#index >= traces.length) this.#index = 0;
    const trace = traces[this.#index] ?? null;
    if (trace !== this.#trace) this.#restart(trace);
    this.#drawTabs();
    this.#append();
    this.#drawEnd();
  }

  /** Into sight: on a narrow page it stands below the prompt. */
  bring() {
    const { top } = this.#root.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) this.#root.scrollIntoView({ block: 'start' });
  }

  #restart(trace) {
    this.#pause();
    this.#trace = trace;
    this.#rows = [];
    this.#steps = new Steps();
    this.#position = null;
    this.#picked = null;
    this.#pinned = false;
    this.#rowsBox.replaceChildren();
    this.#scroller.scrollTop = 0;
    this.#inspector.clear();
    this.#root.classList.toggle('sv-board--baseline', trace?.meta.drafter === 'none');
  }

  #append() {
    const trace = this.#trace;
    const fragment = document.createDocumentFragment();
    const following = this.#atEdge();
    const first = this.#rows.length;
    for (let index = first; trace && index < trace.rounds.length; index += 1) {
      const row = drawRow(trace, trace.rounds[index]);
      this.#steps.add(trace.rounds[index]);
      this.#rows.push(row);
      this.#paint(index);
      fragment.append(row.element);
    }
    if (this.#rows.length > first) {
      this.#rowsBox.append(fragment);
      if (!this.#picked) this.#makeTabStop(this.#rows[0].tiles.keys().next().value, 0);
      if (this.#live && this.#position === null && following) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    }
    this.#drawBar();
    if (this.#rows.length > first && this.#position === null) this.#tellMoved();
  }

  #paint(index) {
    const row = this.#rows[index];
    const shown = this.#position === null ? Infinity : this.#steps.shown(index, this.#position);
    paintRow(row, this.#trace, this.#steps.view(index, Math.min(shown, this.#steps.end(index) - this.#steps.start(index))), this.#ctx);
  }

  // ------------------------------------------------------------ stepping

  step(by) {
    const total = this.#steps.total;
    const from = this.#position ?? total;
    this.go(Math.min(Math.max(from + by, 0), total));
  }

  end() {
    this.go(this.#steps.total);
  }

  /** Show all of the round the cursor is in, or all of the next one. */
  reveal() {
    const total = this.#steps.total;
    const from = this.#position ?? total;
    if (from >= total) return;
    this.go(this.#steps.end(this.#steps.last(from + 1).round));
  }

  /** Show exactly the first `position` steps. */
  go(position) {
    const total = this.#steps.total;
    if (!total) return;
    const before = this.#position ?? total;
    this.#position = position >= total ? null : position;
    const [low, high] = position < before ? [position, before] : [before, position];
    const last = this.#steps.last(Math.max(high, 1)).round;
    for (let index = low > 0 ? this.#steps.last(low).round : 0; index <= last; index += 1) this.#paint(index);
    this.#arrive(position);
  }

  #arrive(position) {
    const step = this.#steps.last(position);
    this.#pinned = false;
    if (step === null) this.#unpick();
    // On a small page a step does not open the sheet over the board: the caption says what happened.
    else this.#pick(step.round, step.kind === 'emitted' ? OWN : step.node ?? 0, { inspect: !this.#inspector.sheet() || this.#inspector.cover() !== null });
    this.#say(this.#sentence(step));
    this.#drawBar();
    this.#drawEnd();
    this.#tellMoved();
  }

  play() {
    if (this.#timer !== null) {
      this.#pause();
      return;
    }
    if (this.#position === null) this.go(0);
    if (!this.#steps.total) return;
    this.#timer = setInterval(() => {
      this.step(1);
      if (this.#position === null) this.#pause();
    }, PACE);
    this.#drawBar();
  }

  #pause() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.#drawBar();
  }

  escape() {
    this.#pause();
    this.#unpick();
  }

  /** Explain the first refused draft. */
  why() {
    const round = this.#trace?.rounds.findIndex((each) => each.nodes.some((node) => node.status === 'rejected')) ?? -1;
    if (round < 0) return;
    if (this.#steps.end(round) > (this.#position ?? Infinity)) this.go(this.#steps.end(round));
    this.#pinned = true;
    this.#pick(round, this.#trace.rounds[round].nodes.findIndex((node) => node.status === 'rejected'), { focus: true });
  }

  #sentence(step) {
    const { t } = this.#ctx;
    if (step === null) return t('board.said.start');
    const round = this.#trace.rounds[step.round];
    const place = t('board.said.round', { round: step.round });
    if (step.kind === 'drafted' && isTree(round)) {
      const first = childrenOf(round, ROOT).map((node) => quote(this.#trace.text(round.nodes[node].id), t)).join(', ');
      const depth = Math.max(...round.nodes.map((_, node) => depthOf(round, node)));
      return `${place} ${t('tree.said', { n: round.nodes.length, depth, first })}`;
    }
    if (step.kind === 'drafted') {
      const drafts = round.nodes.map((node) => quote(this.#trace.text(node.id), t)).join(', ');
      return `${place} ${t('board.said.drafted', { n: round.nodes.length, drafts })}`;
    }
    const said = step.kind === 'judged' ? judgement(this.#trace, round, step.node, this.#ctx) : ownToken(this.#trace, round, this.#ctx);
    return `${place} ${said}`;
  }

  // ------------------------------------------------------------ the tile under the cursor

  #pick(round, node, { focus = false, inspect = true } = {}) {
    const tile = this.#rows[round]?.tiles.get(node);
    if (!tile) return;
    this.#unmark();
    this.#picked = { round, node };
    tile.classList.add('sv-tile--current');
    tile.setAttribute('aria-pressed', String(this.#pinned));
    this.#makeTabStop(node, round);
    if (inspect) this.#inspect(round, node);
    if (focus || this.#scroller.contains(document.activeElement)) tile.focus({ preventScroll: true });
    this.#bringIntoView(tile);
  }

  #unpick() {
    this.#unmark();
    if (this.#picked && document.activeElement === this.#rows[this.#picked.round].tiles.get(this.#picked.node)) document.activeElement.blur();
    this.#picked = null;
    this.#pinned = false;
    this.#inspector.clear();
  }

  #unmark() {
    const tile = this.#picked && this.#rows[this.#picked.round]?.tiles.get(this.#picked.node);
    tile?.classList.remove('sv-tile--current');
    tile?.removeAttribute('aria-pressed');
  }

  #makeTabStop(node, round) {
    this.#stop?.setAttribute('tabindex', '-1');
    for (const extra of this.#stopExtras) extra.tabIndex = -1;
    this.#stop = this.#rows[round].tiles.get(node) ?? null;
    this.#stop?.setAttribute('tabindex', '0');
    this.#stopExtras = this.#rows[round].extras;
    for (const extra of this.#stopExtras) extra.tabIndex = 0;
  }

  #stop = null;
  #stopExtras = [];

  #inspect(round, node) {
    const shown = this.#position === null ? Infinity : this.#steps.shown(round, this.#position);
    const view = this.#steps.view(round, Math.min(shown, this.#steps.end(round) - this.#steps.start(round)));
    this.#inspector.show(this.#trace, round, node === OWN ? null : node, { judged: isJudged(this.#trace.rounds[round], node, view), pinned: this.#pinned });
  }

  #bringIntoView(tile) {
    this.#rows[address(tile)[0]].tree?.bring(tile);
    const box = this.#scroller.getBoundingClientRect();
    const at = tile.getBoundingClientRect();
    if (at.bottom > box.bottom - 8) this.#scroller.scrollTop += at.bottom - box.bottom + 24;
    else if (at.top < box.top + 8) this.#scroller.scrollTop -= box.top - at.top + 24;
    this.#showTree(tile, box);
    const cover = this.#inspector.cover();
    const low = tile.getBoundingClientRect().bottom;
    if (cover !== null && low > cover - 8) scrollerOf(this.#root).scrollTop += low - cover + 24;
  }

  /** The kept path stands on top of its tree: the branches under it come into sight with it, as far as there is room. */
  #showTree(tile, box) {
    const row = this.#rows[address(tile)[0]];
    if (!row.tree) return;
    const whole = row.element.getBoundingClientRect();
    const room = Math.min(whole.top, tile.getBoundingClientRect().top) - box.top - 8;
    const hidden = whole.bottom - box.bottom;
    if (hidden > 0 && room > 0) this.#scroller.scrollTop += Math.min(hidden, room);
  }

  /** Move the cursor among the tiles without stepping. */
  #walk(rows, tiles) {
    const visible = this.#rows.filter((row) => !row.element.hidden);
    if (!visible.length) return;
    const from = this.#picked ?? { round: rows < 0 || tiles < 0 ? visible.length - 1 : 0, node: null };
    const list = seenTiles(this.#rows[from.round]);
    const column = Math.max(list.indexOf(from.node), 0);
    this.#pinned = false;
    const { tree } = this.#rows[from.round];
    const next = tree && from.node !== null ? tree.toward(from.node, [rows, tiles]) : null;
    // In a tree only the path leads on to other rounds; a branch ends where it ends.
    if (tree && next === null && tiles > 0 && from.node !== OWN) return;
    if (next !== null) this.#pick(from.round, next, { focus: true });
    else if (tree && tiles) this.#walkRow(from.round + tiles, tiles > 0 ? 0 : Infinity);
    else if (from.node === null) this.#pick(from.round, list[0], { focus: true });
    else if (tiles && list[column + tiles] !== undefined) this.#pick(from.round, list[column + tiles], { focus: true });
    else this.#walkRow(from.round + (rows || tiles), rows ? column : tiles > 0 ? 0 : Infinity);
  }

  #walkRow(round, column) {
    const row = this.#rows[round];
    if (!row || row.element.hidden) return;
    const list = seenTiles(row);
    this.#pick(round, list[Math.min(column, list.length - 1)], { focus: true });
  }

  #pickTile(tile) {
    const [round, node] = address(tile);
    const again = this.#pinned && this.#picked?.round === round && this.#picked.node === node;
    this.#pause();
    this.#pinned = !again;
    this.#pick(round, node, { focus: true });
    this.#tellMoved();
  }

  // ------------------------------------------------------------ frame

  #build() {
    const root = this.#root;
    this.#tabs = make('div', 'sv-board-tabs');
    this.#bar = make('div', 'sv-board-bar');
    this.#bar.setAttribute('role', 'toolbar');
    this.#controls = new Map(BUTTONS.map((name) => {
      const button = make('button', `sv-board-button sv-board-button--${name}`);
      button.append(icon(name));
      button.type = 'button';
      button.dataset.do = name;
      return [name, button];
    }));
    this.#counter = make('span', 'sv-board-counter');
    this.#badge = make('span', 'sv-board-badge');
    this.#rule = make('span', 'sv-board-rule');
    this.#bar.append(...this.#controls.values(), this.#counter, this.#badge, this.#rule, this.#tabs);
    this.#caption = make('p', 'sv-board-caption');
    this.#caption.setAttribute('role', 'status');
    this.#scroller = make('div', 'sv-board-scroll');
    this.#rowsBox = make('ol', 'sv-rows');
    this.#finish = make('p', 'sv-board-finish');
    this.#scroller.append(this.#rowsBox, this.#finish);
    const side = make('div', 'sv-board-side');
    const main = make('div', 'sv-board-main');
    this.#ask = make('button', 'sv-question');
    this.#ask.type = 'button';
    this.#ask.dataset.do = 'why';
    this.#keys = make('p', 'sv-board-keys');
    main.append(this.#bar, this.#caption, this.#scroller);
    const foot = make('div', 'sv-board-foot');
    foot.append(this.#ask);
    root.replaceChildren(main, side, foot);
    this.#inspector = mountInspector(side, this.#ctx, { close: () => this.escape() });
    this.#legend = mountLegend(foot, this.#ctx);
    foot.append(this.#keys);
  }

  #tabs;
  #bar;
  #controls;
  #counter;
  #badge;
  #rule;
  #caption;
  #scroller;
  #rowsBox;
  #finish;
  #ask;
  #keys;
  #inspector;
  #legend;

  #drawTabs() {
    const traces = this.#bundle?.traces ?? [];
    this.#tabs.hidden = traces.length < 2;
    if (this.#tabs.hidden) {
      this.#tabs.replaceChildren();
      return;
    }
    if (this.#tabs.childElementCount !== traces.length) {
      this.#tabs.replaceChildren(...traces.map((trace, index) => {
        const tab = make('button', 'sv-board-tab');
        tab.type = 'button';
        tab.dataset.trace = index;
        return tab;
      }));
    }
    [...this.#tabs.children].forEach((tab, index) => {
      const { drafter } = traces[index].meta;
      const several = traces.filter((trace) => trace.meta.drafter !== 'none').length > 1;
      tab.textContent = this.#ctx.t(drafter === 'none' ? 'board.tab.baseline' : several ? `drafter.${drafter}` : 'board.tab.speculative');
      tab.setAttribute('aria-pressed', String(index === this.#index));
    });
  }

  #drawBar() {
    const { t } = this.#ctx;
    const total = this.#steps.total;
    const at = this.#position ?? total;
    const step = at > 0 ? this.#steps.last(at) : null;
    this.#counter.textContent = total ? t('board.counter', { round: step?.round ?? 0, rounds: this.#rows.length - 1 }) : '';
    const playing = this.#timer !== null;
    for (const [name, button] of this.#controls) {
      const idle = !total || (['home', 'back'].includes(name) && at === 0) || (['next', 'reveal', 'end'].includes(name) && at === total);
      button.setAttribute('aria-disabled', String(idle));
    }
    this.#controls.get('play').replaceChildren(icon(playing ? 'pause' : 'play'));
    for (const [name, button] of this.#controls) {
      const words = t(name === 'play' && playing ? 'board.do.pause' : `board.do.${name}`);
      button.setAttribute('aria-label', words);
      button.title = `${words} (${t(`board.key.${name}`)})`;
    }
    this.#ask.hidden = !this.#trace?.rounds.some((round) => round.nodes.some((node) => node.status === 'rejected'));
  }

  #drawEnd() {
    const { t } = this.#ctx;
    const trace = this.#trace;
    const over = trace?.finish != null && this.#position === null;
    this.#finish.textContent = !trace || !this.#rows.length ? t('board.empty') : over ? t(`board.finish.${trace.finish}`) : '';
    this.#finish.hidden = this.#finish.textContent === '';
    const badge = trace && this.#ctx.badge?.(trace.origin);
    this.#badge.replaceChildren(...(badge ? [badge] : []));
    const rule = trace && trace.meta.drafter !== 'none' ? ruleHeader(trace.meta, t) : null;
    this.#rule.hidden = rule === null;
    this.#rule.textContent = rule ?? '';
    this.#rule.classList.toggle('sv-board-rule--lossy', isLossy(trace?.meta.rule));
    this.#keys.textContent = this.#rows.some((row) => row.tree) ? `${t('board.keys')} · ${t('tree.keys')}` : t('board.keys');
    if (this.#position === null && !this.#picked) this.#say(this.#rows.length && trace.finish != null ? t('board.said.hint') : '');
  }

  #say(text) {
    if (this.#caption.textContent !== text) this.#caption.textContent = text;
  }

  #tellMoved() {
    const total = this.#steps.total;
    const position = this.#position ?? total;
    const round = this.#picked?.round ?? this.#steps.last(position)?.round ?? 0;
    this.#ctx.moved?.({ trace: this.#trace, round, position, total });
  }

  #atEdge() {
    const { scrollTop, clientHeight, scrollHeight } = this.#scroller;
    return scrollTop + clientHeight >= scrollHeight - 48;
  }

  setWords() {
    const { t } = this.#ctx;
    this.#bar.setAttribute('aria-label', t('board.bar'));
    this.#rowsBox.setAttribute('aria-label', t('board.title'));
    this.#tabs.setAttribute('role', 'group');
    this.#tabs.setAttribute('aria-label', t('board.tabs'));
    this.#ask.textContent = t('board.why');
    this.#rows.forEach((row, index) => {
      row.view = null;
      this.#paint(index);
    });
    this.#legend.setWords();
    this.#inspector.setWords();
    this.#drawTabs();
    this.#drawBar();
    this.#drawEnd();
    if (this.#picked) this.#say(this.#sentence(this.#steps.last(this.#position ?? this.#steps.total)));
  }

  // ------------------------------------------------------------ listening

  #listen() {
    const options = { signal: this.#tidy.signal };
    this.#root.addEventListener('click', (event) => this.#onClick(event), options);
    this.#scroller.addEventListener('pointerover', (event) => this.#onPoint(event), options);
    this.#scroller.addEventListener('pointerleave', () => this.#onLeave(), options);
    this.#scroller.addEventListener('focusin', (event) => this.#onFocus(event), options);
    document.addEventListener('keydown', (event) => this.#onKey(event), options);
    // A button reacts to Space when the key comes up.
    this.#scroller.addEventListener('keyup', (event) => event.key === ' ' && !event.target.closest('[data-keeps]') && event.preventDefault(), options);
  }

  #onClick(event) {
    const tile = event.target.closest('.sv-tile[data-at]');
    const button = event.target.closest('[data-do]');
    const tab = event.target.closest('[data-trace]');
    const mask = event.target.closest('[data-mask]');
    if (mask) toggleMask(this.#rows[Number(mask.dataset.mask)], this.#ctx);
    else if (tile) this.#pickTile(tile);
    else if (button) this.#command(button.dataset.do);
    else if (tab) this.#showTrace(Number(tab.dataset.trace));
  }

  #command(name) {
    if (name !== 'play') this.#pause();
    const commands = {
      home: () => this.go(0), back: () => this.step(-1), next: () => this.step(1), end: () => this.end(),
      reveal: () => this.reveal(), play: () => this.play(), why: () => this.why(), escape: () => this.escape(),
    };
    commands[name]?.();
  }

  #showTrace(index) {
    this.#index = index;
    this.refresh();
    this.#tellMoved();
  }

  #onPoint(event) {
    if (event.pointerType === 'touch' || this.#pinned) return;
    const tile = event.target.closest('.sv-tile[data-at]');
    if (tile) this.#inspect(...address(tile));
  }

  #onLeave() {
    if (this.#pinned) return;
    if (this.#picked) this.#inspect(this.#picked.round, this.#picked.node);
    else this.#inspector.clear();
  }

  #onFocus(event) {
    const tile = event.target.closest('.sv-tile[data-at]');
    if (!tile || !tile.matches(':focus-visible')) return;
    const [round, node] = address(tile);
    if (this.#picked?.round !== round || this.#picked.node !== node) this.#pick(round, node);
  }

  #onKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !this.#hears(event.target)) return;
    const onButton = event.target.closest?.('button, a, summary, [role="tab"]') && !this.#scroller.contains(event.target);
    if ((onButton || event.target.closest?.('[data-keeps]')) && (event.key === ' ' || event.key === 'Enter')) return;
    const walks = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ...(event.shiftKey ? { ArrowLeft: [0, -1], ArrowRight: [0, 1] } : {}),
    };
    const names = { ArrowRight: 'next', ' ': 'next', ArrowLeft: 'back', Home: 'home', End: 'end', r: 'reveal', p: 'play', Escape: 'escape' };
    const name = names[event.key.length > 1 ? event.key : event.key.toLowerCase()];
    const walk = walks[event.key];
    // On the bare page up and down belong to scrolling.
    if (walk && (event.shiftKey || this.#root.contains(event.target))) this.#walk(...walk);
    else if (name && !event.shiftKey) this.#command(name);
    else return;
    event.preventDefault();
  }

  #hears(target) {
    if (!this.#steps.total || !this.#root.isConnected || this.#root.offsetParent === null) return false;
    if (target.closest?.('input, textarea, select, [contenteditable="true"], dialog')) return false;
    // A click on bare page lands on main, one on Run stays there, and both go on with the arrows; a button keeps its own keys.
    return target === document.body || this.#root.contains(target) || target.matches('main, button, a, summary');
  }

  destroy() {
    this.#pause();
    this.#tidy.abort();
    this.#inspector.destroy();
    this.#root.replaceChildren();
  }
}

function seenTiles(row) {
  return [...row.tiles].filter(([, tile]) => isSeen(tile)).map(([node]) => node);
}

/** The element that scrolls the page around `element`. */
function scrollerOf(element) {
  for (let at = element.parentElement; at; at = at.parentElement) {
    if (at.scrollHeight > at.clientHeight && /auto|scroll/.test(getComputedStyle(at).overflowY)) return at;
  }
  return document.scrollingElement;
}
