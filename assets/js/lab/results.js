/** Results as files: question files and results that are opened, CSV, JSON and PNG that are saved. */

import { h } from '../dom.js';

export const SCHEMA = 'specviz.result/1';
export const MOST_BYTES = 4_000_000; // as in spec_viz/lab/sweep.py
const WIDTH = 2200; // of a picture, in its own pixels: two of them are one of the page
const MARGIN = 40;

/** What a result is of: γ, temperature, …, or what its own module measures. */
export function kindOf(record) {
  return record.kind === 'sweep' ? record.experiment.kind : record.kind;
}

/**
 * {prompts: [category, prompt] pairs, skipped, more} of a file of JSON lines as Spec-Bench has them; `skipped` lines held
 * no question, and `more` questions are beyond the `most` that are taken.
 */
export function readQuestions(text, most) {
  const lines = text.split('\n').filter((line) => line.trim());
  const found = lines.map(questionOf).filter(Boolean);
  return { prompts: found.slice(0, most), skipped: lines.length - found.length, more: Math.max(found.length - most, 0) };
}

/** As `_question` in spec_viz/lab/bench.py reads a line. */
function questionOf(line) {
  const body = parsed(line);
  const prompt = Array.isArray(body?.turns) && body.turns.length ? body.turns[0] : body?.prompt;
  return typeof prompt === 'string' && prompt.trim() ? [String(body.category ?? '').trim().slice(0, 60) || '–', prompt] : null;
}

/** The JSON of a text; undefined where it is none. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function saveText(text, name, type) {
  saveBlob(new Blob([text], { type }), name);
}

function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** All charts in one picture that can stand alone: the verdict above them, their conditions below, on the page's ground. */
export async function savePng(charts, { name, verdict, conditions, ground, ink }) {
  const family = getComputedStyle(document.body).fontFamily;
  const pictures = [];
  for (const chart of charts) pictures.push(await pictureOf(chart, ground, family));
  const canvas = document.createElement('canvas');
  const pen = canvas.getContext('2d');
  const fonts = { verdict: `600 ${2 * 20}px ${family}`, conditions: `${2 * 12}px ${family}` };
  const room = WIDTH - 2 * MARGIN;
  const lines = (text, font) => {
    pen.font = font;
    return wrapped(text, (line) => pen.measureText(line).width <= room);
  };
  const above = lines(verdict, fonts.verdict);
  const below = lines(conditions, fonts.conditions);
  const heights = [above.length * 56 + 2 * MARGIN, ...pictures.map((picture) => picture.height), below.length * 36 + 2 * MARGIN];
  canvas.width = WIDTH;
  canvas.height = heights.reduce((sum, height) => sum + height, 0);
  pen.fillStyle = ground;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = ink;
  pen.textBaseline = 'top';
  pen.font = fonts.verdict;
  above.forEach((line, place) => pen.fillText(line, MARGIN, MARGIN + place * 56));
  let top = heights[0];
  for (const picture of pictures) {
    pen.drawImage(picture, 0, top);
    top += picture.height;
  }
  pen.font = fonts.conditions;
  below.forEach((line, place) => pen.fillText(line, MARGIN, top + MARGIN + place * 36));
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  saveBlob(blob, name);
}

/** A chart with its title, as wide as the whole picture. */
async function pictureOf({ title, figure: { data, layout } }, ground, family) {
  const figure = {
    data,
    layout: {
      ...layout,
      title: { text: title, x: 0.01, xanchor: 'left', y: 0.97, yanchor: 'top', font: { size: 18 } },
      margin: { l: 24, r: 24, t: 110, b: Math.max(layout.margin.b, 40) },
      paper_bgcolor: ground,
      plot_bgcolor: ground,
      font: { ...layout.font, family },
    },
  };
  const height = Math.max(layout.height ?? 0, 360) + 110;
  const picture = new Image();
  picture.src = await window.Plotly.toImage(figure, { format: 'png', width: WIDTH / 2, height, scale: 2 });
  await picture.decode();
  return picture;
}

function wrapped(text, fits) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && !fits(longer)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
