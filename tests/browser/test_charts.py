"""Charts that change faster than they are drawn: another figure, or none, is wanted while one is on its way."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser

# A chart is wanted, wanted anew and given up at every moment of its drawing: so many of the page's promises apart.
HURRY = """async (moments) => {
  const { loadPlotly, mountCharts } = await import('./sv/js/charts.js');
  await loadPlotly('./sv/');
  const root = document.createElement('div');
  root.id = 'hurried';
  document.body.append(root);
  const charts = mountCharts(root, { boot: { static: './sv/' }, words: { t: (key) => key }, heading: 'none' });
  const chart = (key, height) => ({
    key,
    figure: {
      data: [4, 5].map((y) => ({ x: ['one', 'two'], y: [height, y], name: `to ${y}` })),
      layout: { height: 200, xaxis: { automargin: true, title: { text: 'x' } }, yaxis: { automargin: true } },
    },
    summary: `${key} ${height}`,
  });
  const steps = async (count) => {
    for (let at = 0; at < count; at += 1) await null;
  };
  for (const moment of moments) {
    charts.show([chart('kept', moment), chart('lost', moment)]);
    await steps(moment);
    charts.show([chart('kept', moment + 1)]);
    await steps(moment);
    charts.show(moment % 2 ? [] : [chart('kept', moment + 2)]);
    await new Promise((resolve) => setTimeout(resolve));
  }
  charts.show([chart('kept', 1), chart('last', 7)]);
}"""


def test_a_chart_may_change_or_go_while_it_is_drawn(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?lang=en")
    page.evaluate(HURRY, list(range(40)))
    plots = page.locator("#hurried .sv-chart-plot")
    expect(plots).to_have_count(2)
    expect(page.locator("#hurried .main-svg .bartext, #hurried .scatterlayer .trace")).to_have_count(4)
    # What is seen is what was asked for last, and nothing of what was given up.
    tops = plots.evaluate_all("(plots) => plots.map((plot) => plot.data[0].y[0])")
    assert tops == [1, 7]
    assert page.locator(".sv-chart-plot--failed").count() == 0
