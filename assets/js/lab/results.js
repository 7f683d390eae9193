/** Results as files: question files and results that are opened, CSV, JSON and PNG that are saved. */

import { h } from '../dom.js';

export const SCHEMA = 'specviz.result/1';
export const MOST_BYTES = 4_000_000; // as in spec_viz/lab/sweep.py
const LETTERS = 150; // of the conditions in one line of a picture

/** What a result is of: γ, temperature, task, streaming or concurrency. */
export function kindOf(record) {
  return record.kind === 'sweep' ? record.experiment.kind : record.kind;
}

/** [category, prompt] pairs of a file of JSON lines as Spec-Bench has them; lines that are none are left out. */
export function readQuestions(text, most) {
  const found = [];
  for (const line of text.split('\n')) {
    const body = parsed(line);
    const prompt = body?.turns?.[0] ?? body?.prompt;
    if (typeof prompt === 'string' && prompt.trim()) found.push([String(body.category ?? '–').slice(0, 60), prompt]);
    if (found.length === most) break;
  }
  return found;
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
  const url = URL.createObjectURL(new Blob([text], { type }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A chart as a picture that can stand alone: with its title, on the page's ground, its conditions under it. */
export async function savePng({ data, layout }, { name, title, conditions, ground }) {
  const lines = wrapped(conditions, LETTERS);
  const note = {
    text: lines.join('<br>'),
    x: 0,
    xref: 'paper',
    xanchor: 'left',
    y: 0,
    yref: 'paper',
    yanchor: 'top',
    yshift: -56,
    align: 'left',
    showarrow: false,
    font: { size: 11 },
  };
  const figure = {
    data,
    layout: {
      ...layout,
      title: { text: title, x: 0.01, xanchor: 'left', y: 0.97, yanchor: 'top', font: { size: 18 } },
      margin: { l: 24, r: 24, t: 110, b: 70 + 16 * lines.length },
      paper_bgcolor: ground,
      plot_bgcolor: ground,
      font: { ...layout.font, family: getComputedStyle(document.body).fontFamily },
      annotations: [...(layout.annotations ?? []), note],
    },
  };
  const height = Math.max(layout.height ?? 0, 360) + 160 + 16 * lines.length;
  const url = await window.Plotly.toImage(figure, { format: 'png', width: 1100, height, scale: 2 });
  h('a', { href: url, download: name }).click();
}

function wrapped(text, most) {
  const lines = [''];
  for (const word of text.split(' ')) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push('');
    lines[lines.length - 1] += lines.at(-1) ? ` ${word}` : word;
  }
  return lines;
}
