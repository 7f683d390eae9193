/** The text a run has written, coloured by where each token came from or by how sure the target was of it. */

import { drawRunning, isSpecial, make, probability } from './tile.js';
import { pieces } from './trace.js';

const MODES = ['origin', 'sure'];
const ORIGINS = ['accepted', 'correction', 'bonus', 'plain'];

export function mountFinished(root, ctx) {
  root.classList.add('sv-finished');
  const head = make('div', 'sv-panel-head');
  const choice = make('div', 'sv-choice');
  choice.setAttribute('role', 'group');
  const text = make('p', 'sv-finished-text');
  const legend = make('ul', 'sv-finished-legend');
  head.append(choice);
  root.replaceChildren(head, text, legend);
  let mode = MODES[0];
  let trace = null;
  let upto = null;
  let drawn = 0; // entries whose pieces are final
  let tail = []; // the piece that may still grow

  const buttons = new Map(MODES.map((name) => {
    const button = make('button', '');
    button.type = 'button';
    button.addEventListener('click', () => choose(name));
    choice.append(button);
    return [name, button];
  }));

  function choose(name) {
    mode = name;
    setWords();
  }

  function redraw() {
    text.replaceChildren();
    drawn = 0;
    tail = [];
    if (trace && !trace.meta.chat && typeof trace.meta.prompt_text === 'string') {
      text.append(make('span', 'sv-finished-prompt'));
      drawRunning(text.lastChild, trace.meta.prompt_text);
    }
    append();
  }

  /** Draw the entries that came since the last call; an unfinished letter at the end is drawn again next time. */
  function append() {
    for (const element of tail) element.remove();
    tail = [];
    const all = trace?.entries ?? [];
    const entries = (upto === null ? all : all.filter((entry) => entry.round < upto)).slice(drawn);
    for (const piece of pieces(entries.map((entry) => trace.text(entry.id)))) {
      const element = drawPiece(piece, entries.slice(piece.start, piece.end));
      text.append(element);
      if (piece.open) tail.push(element);
      else drawn += piece.end - piece.start;
    }
    text.classList.toggle('sv-finished-text--empty', !all.length);
    if (!trace || !all.length) text.dataset.empty = ctx.t('finished.empty');
    else delete text.dataset.empty;
  }

  function drawPiece(piece, entries) {
    const last = entries.at(-1);
    const special = entries.length === 1 && isSpecial(trace.text(last.id));
    const element = make('span', special ? 'sv-piece sv-piece--special' : 'sv-piece');
    drawRunning(element, piece.text ?? new TextDecoder().decode(piece.bytes));
    if (mode === 'origin') {
      element.classList.add(`sv-piece--${last.source}`);
      element.title = ctx.t(`legend.${last.source}`);
      return element;
    }
    const known = entries.map((entry) => entry.sure).filter((sure) => sure !== null);
    if (known.length) {
      const sure = Math.min(...known);
      element.classList.add('sv-piece--sure');
      element.style.setProperty('--sure', String(Math.round((1 - sure) * 60)));
      element.title = ctx.t('finished.sure.tip', { p: probability(sure, ctx.lang()) });
    } else {
      element.classList.add('sv-piece--unknown');
      element.title = ctx.t('finished.sure.unknown');
    }
    return element;
  }

  function drawLegend() {
    const sample = (className, words, share) => {
      const item = make('li', '');
      const swatch = make('span', `sv-piece ${className}`, '\u00a0');
      if (share !== undefined) swatch.style.setProperty('--sure', String(share));
      item.append(swatch, words);
      return item;
    };
    legend.replaceChildren(...(mode === 'origin'
      ? ORIGINS.map((name) => sample(`sv-piece--${name}`, ctx.t(`legend.${name}`)))
      : [sample('sv-piece--sure', ctx.t('finished.sure.low'), 60), sample('sv-piece--sure', ctx.t('finished.sure.middle'), 30),
        sample('sv-piece--sure', ctx.t('finished.sure.high'), 0), sample('sv-piece--unknown', ctx.t('finished.sure.unknown'))]));
  }

  function setWords() {
    choice.setAttribute('aria-label', ctx.t('finished.choice'));
    text.setAttribute('aria-label', ctx.t('finished.title'));
    for (const [name, button] of buttons) {
      button.textContent = ctx.t(`finished.${name}`);
      button.setAttribute('aria-pressed', String(name === mode));
    }
    drawLegend();
    redraw();
  }

  setWords();
  return {
    /** Show the text of the first `rounds` rounds (all when null); calling it again as rounds arrive only appends. */
    show(next, rounds = null) {
      const same = next === trace && rounds === upto;
      trace = next;
      upto = rounds;
      if (same) append();
      else redraw();
    },
    setWords,
    destroy: () => root.replaceChildren(),
  };
}
