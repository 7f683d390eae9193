/** A recorded experiment, drawn as the Lab draws it (spec_viz/ui/lesson_route.py), and the way to measure one's own. */

import { mountCharts } from '../charts.js';
import { h } from '../dom.js';
import { themeOf } from '../shell.js';

export function mountExperiment(root, stage) {
  const { figure, ctx, host, texts, asks, live } = stage;
  const { t } = ctx;
  const views = JSON.parse(texts[0]);
  const plots = h('div', { class: 'sv-l-experiment' });
  const closed = h('p', { class: 'sv-l-summary' }, t('lesson.experiment.closed'));
  const own = h('a', { href: `?place=lab&room=experiments&x=${figure.lab}`, target: '_blank' }, t('lesson.experiment.lab'));
  root.append(
    closed,
    plots,
    h('p', { class: 'sv-l-about' }, ctx.badge('recorded'), ' ', views.light.conditions),
    live ? h('p', { class: 'sv-l-own', 'data-hide': 'tools' }, own) : '',
  );
  const charts = mountCharts(plots, { boot: host.boot, words: host.words, heading: 'lesson.figure.experiment' });
  let shown = !asks;
  const draw = () => {
    // Paper is white.
    const all = views[live ? themeOf(host.state) : 'light'].charts;
    const wanted = figure.charts.length ? figure.charts.map((name) => all.find(({ key }) => key === name)).filter(Boolean) : all;
    closed.hidden = shown;
    charts.show(shown ? wanted : []);
    // Some charts are as high as they have rows.
    for (const [place, plot] of plots.querySelectorAll('.sv-chart-plot').entries())
      plot.style.height = `${wanted[place].figure.layout.height}px`;
  };
  draw();
  return {
    total: asks ? 1 : 0,
    first: 0,
    go(position) {
      const now = !asks || position > 0;
      if (now === shown) return;
      shown = now;
      draw();
    },
    repaint: draw,
    destroy: () => charts.show([]),
  };
}
