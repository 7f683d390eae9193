/** The formula room's charts: pure functions from its values to a Plotly figure and a sentence that says the same. */

import { MOST_DRAFTS } from './settings.js';
import { acceptedLengthLaw, bestGamma, expectedTokens, speedup, wrongExpectedTokens } from '../theory.js';

const OTHERS = [0.5, 0.7, 0.9]; // the α that are drawn beside one's own
const GAMMAS = Array.from({ length: MOST_DRAFTS }, (_, index) => index + 1);
const ALPHAS = Array.from({ length: 19 }, (_, index) => (index + 1) / 20);
const COSTS = Array.from({ length: 11 }, (_, index) => index / 20);
const COLOURS = ['ink', 'muted', 'line', 'surface', 'sunken', 'bg', 'accent', 'ok-line', 'no-line', 'own-line'];

/** The page's colours as they are now, light or dark. */
export function paints() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--sv-${name}`).trim()]));
}

/** Speedup against γ: one's own α among others, one's own point, and the last run where there is one. */
export function speedupChart(model, paint, { t, number, lang }) {
  const { alpha, gamma, c, v, overhead, run, best } = model;
  const curve = (each) => GAMMAS.map((g) => speedup(each, g, c, v(g + 1), overhead));
  const name = (each) => `α = ${number(each, 2, false)}`;
  const others = OTHERS.filter((each) => Math.abs(each - alpha) > 0.08).map((each) =>
    line(GAMMAS, curve(each), name(each), { line: { color: paint.muted, width: 1.25 } }),
  );
  const mine = curve(alpha);
  const here = speedup(alpha, gamma, c, v(gamma + 1), overhead);
  const data = [
    ...others,
    line(GAMMAS, mine, name(alpha), { line: { color: paint.accent, width: 3 } }),
    dot(gamma, here, t('chart.lab_speedup.you'), paint.accent, 'circle', 13, paint.bg),
  ];
  if (run) {
    const told = run.curve.filter((each) => each.positions !== null);
    data.push(
      line(told.map((each) => each.gamma), told.map((each) => each.positions), t('chart.lab_speedup.positions'), {
        line: { color: paint['own-line'], width: 2, dash: 'dash' },
      }),
      dot(run.knobs.gamma, run.measured, t('chart.lab_speedup.run'), paint['own-line'], 'star', 15, paint.bg),
    );
  }
  const layout = frame(paint, lang, t('chart.lab.axis.gamma'), t('chart.axis.speedup'));
  layout.xaxis.range = [0.6, MOST_DRAFTS + 0.4];
  layout.yaxis.rangemode = 'tozero';
  layout.shapes = [level(paint, 1)];
  layout.annotations = [
    note(paint, 0.65, 1, t('chart.lab_speedup.even'), { xanchor: 'left', yanchor: 'top' }),
    // Their own colours would need a legend that is looked up; a name at the end of a line is read.
    ...apart([data[others.length], ...others]).map((each) =>
      note(paint, MOST_DRAFTS + 0.35, each.y.at(-1), each.name, {
        xanchor: 'left',
        font: { size: 12, color: each.line.color },
      }),
    ),
  ];
  layout.margin.r = 64;
  layout.showlegend = run !== null;
  for (const each of [...others, data[others.length], data[others.length + 1]]) each.showlegend = false;
  const summary = t(`chart.lab_speedup.${best.gamma ? 'summary' : 'summary.none'}`, {
    alpha: number(alpha, 2, false),
    gamma,
    speedup: number(here, 2),
    best: best.gamma,
    most: number(best.speedup, 2),
  });
  return { key: 'lab_speedup', figure: { data, layout }, summary };
}

/** Which γ is best for each α and c, with v and the overhead as they are set. */
export function heatChart(model, paint, { t, number, lang }) {
  const { alpha, c, v, overhead, run, most, best } = model;
  const rows = ALPHAS.map((a) => COSTS.map((cost) => bestGamma(a, cost, { v, overhead, most }).gamma));
  const data = [
    {
      type: 'heatmap',
      x: COSTS,
      y: ALPHAS,
      z: rows.map((row) => row.map((gamma) => Math.log2(gamma + 1))),
      text: rows.map((row) => row.map(String)),
      texttemplate: '%{text}',
      textfont: { size: 11 },
      hovertemplate: `α = %{y}, c = %{x}: γ = %{text}<extra></extra>`,
      colorscale: [
        [0, paint.sunken],
        [0.001, mix(paint.bg, paint.accent, 0.12)],
        [1, mix(paint.bg, paint.accent, 0.75)],
      ],
      zmin: 0,
      zmax: Math.log2(most + 1),
      showscale: false,
      xgap: 1,
      ygap: 1,
    },
  ];
  // Outside the map there is no cell to stand in.
  const inside = (knobs) => knobs.c <= 0.525 && knobs.alpha >= 0.025 && knobs.alpha <= 0.975;
  if (inside(model)) data.push(dot(c, alpha, t('chart.lab_speedup.you'), paint.accent, 'circle-open', 18, paint.ink));
  if (run && inside(run.knobs))
    data.push(dot(run.knobs.c, run.knobs.alpha, t('chart.lab_speedup.run'), paint['own-line'], 'star', 15, paint.ink));
  const layout = frame(paint, lang, t('chart.lab.axis.c'), t('chart.lab.axis.alpha'));
  layout.height = 460;
  layout.yaxis.range = [0.025, 0.975];
  layout.yaxis.showgrid = false;
  layout.xaxis.dtick = 0.1;
  layout.showlegend = true;
  data[0].showlegend = false;
  const args = { alpha: number(alpha, 2, false), c: number(c, 3, false), best: best.gamma };
  return { key: 'lab_heat', figure: { data, layout }, summary: t(`chart.lab_heat.${best.gamma ? 'summary' : 'summary.none'}`, args) };
}

/** The chance of each accepted length. */
export function lengthsChart(model, paint, { t, number, lang }) {
  const { alpha, gamma } = model;
  const law = acceptedLengthLaw(alpha, gamma);
  const data = [
    {
      type: 'bar',
      x: law.map((_, kept) => kept),
      y: law,
      marker: { color: law.map((_, kept) => (kept === gamma ? paint['ok-line'] : paint['own-line'])) },
      text: law.map((chance) => (chance >= 0.005 ? number(chance, 2) : '')),
      textposition: 'outside',
      cliponaxis: false,
      hovertemplate: '%{x}: %{y:.3f}<extra></extra>',
    },
  ];
  const layout = frame(paint, lang, t('chart.lab_lengths.axis'), t('chart.lab_lengths.chance'));
  layout.xaxis.dtick = 1;
  layout.yaxis.rangemode = 'tozero';
  const summary = t('chart.lab_lengths.summary', {
    none: number(law[0], 2),
    all: number(law.at(-1), 2),
    gamma,
    tokens: number(expectedTokens(alpha, gamma), 2),
  });
  return { key: 'lab_lengths', figure: { data, layout }, summary };
}

/** The wrong formula beside the right one, and the ceiling that no round can pass. */
export function wrongChart(model, paint, { t, number, lang }) {
  const { alpha, gamma } = model;
  const known = (value) => (Number.isFinite(value) ? value : null);
  const wrong = GAMMAS.map((g) => known(wrongExpectedTokens(alpha, g)));
  const data = [
    line(GAMMAS, GAMMAS.map((g) => g + 1), t('chart.lab_wrong.ceiling'), { line: { color: paint.muted, width: 1.5, dash: 'dot' } }),
    line(GAMMAS, wrong, t('chart.lab_wrong.wrong'), { line: { color: paint['no-line'], width: 2.5, dash: 'dash' } }),
    line(GAMMAS, GAMMAS.map((g) => expectedTokens(alpha, g)), t('chart.lab_wrong.right'), { line: { color: paint.accent, width: 3 } }),
  ];
  const layout = frame(paint, lang, t('chart.lab.axis.gamma'), t('chart.axis.tokens'));
  layout.yaxis.range = [0, 10];
  layout.xaxis.range = [0.6, MOST_DRAFTS + 0.4];
  layout.showlegend = true;
  const summary = t('chart.lab_wrong.summary', {
    alpha: number(alpha, 2, false),
    gamma,
    right: number(expectedTokens(alpha, gamma), 2),
    wrong: alpha < 1 ? number(wrongExpectedTokens(alpha, gamma), 2) : '∞',
  });
  return { key: 'lab_wrong', figure: { data, layout }, summary };
}

// ------------------------------------------------------------ parts of figures

/** The lines whose ends leave room for a name; the first ones go first. */
function apart(lines) {
  const room = Math.max(...lines.flatMap((each) => each.y)) * 0.06;
  return lines.filter((each, index) => lines.slice(0, index).every((other) => Math.abs(other.y.at(-1) - each.y.at(-1)) > room));
}

function line(x, y, name, more) {
  return { type: 'scatter', mode: 'lines', x, y, name, hovertemplate: 'γ = %{x}: %{y:.2f}', ...more };
}

function dot(x, y, name, colour, symbol, size, edge) {
  return {
    type: 'scatter',
    mode: 'markers',
    x: [x],
    y: [y],
    name,
    marker: { symbol, size, color: colour, line: { color: edge, width: 1.5 } },
    hovertemplate: '%{x}: %{y:.2f}',
  };
}

function level(paint, y) {
  return { type: 'line', xref: 'paper', x0: 0, x1: 1, y0: y, y1: y, line: { color: paint['no-line'], width: 1.5, dash: 'dot' } };
}

function note(paint, x, y, text, more) {
  return { x, y, text, showarrow: false, font: { size: 12, color: paint.muted }, yanchor: 'middle', ...more };
}

/** As the charts of a run look (spec_viz/ui/charts.py). */
function frame(paint, lang, x, y) {
  const axis = {
    gridcolor: paint.line,
    linecolor: paint.line,
    zerolinecolor: paint.line,
    tickfont: { color: paint.muted, size: 12 },
    automargin: true,
    // Dragging on a phone must scroll the page, not zoom the chart.
    fixedrange: true,
  };
  return {
    template: {},
    height: 340,
    margin: { l: 8, r: 8, t: 8, b: 8 },
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    font: { size: 13, color: paint.ink },
    separators: lang() === 'vi' ? ', ' : '. ',
    hovermode: 'closest',
    hoverlabel: { bgcolor: paint.surface, bordercolor: paint.line, font: { color: paint.ink } },
    legend: { orientation: 'h', x: 0, y: 1.02, yanchor: 'bottom', traceorder: 'normal', font: { size: 12 } },
    showlegend: false,
    xaxis: { ...axis, title: { text: x, font: { size: 12 } }, showgrid: false, zeroline: false, dtick: 1 },
    yaxis: { ...axis, title: { text: y, font: { size: 12 }, standoff: 10 }, zeroline: false },
  };
}

/** Between two #rrggbb colours. */
function mix(from, to, share) {
  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [a, b] = [parts(from), parts(to)];
  return `rgb(${a.map((value, index) => Math.round(value + (b[index] - value) * share)).join(',')})`;
}
