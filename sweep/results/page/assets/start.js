// Begins with what stands in the page, and, where it is served, keeps it up to date.
"use strict";
(function (page) {
  const specs = page.read("specs");
  const trials = page.read("trials");
  const setup = page.read("setup");
  if (specs) page.updateCharts(specs);
  if (trials) page.updateTrials(trials);
  if (specs) setTimeout(page.drawAll, 100);
  if (setup) page.follow(setup);
})(window.sweepPage);
