// Draws the page's charts with Vega-Lite, and anew where what they show has changed.
"use strict";
window.sweepPage = {
  // Data that stand in the page as JSON.
  read(id) {
    const place = document.getElementById(id);
    return place ? JSON.parse(place.textContent) : null;
  },
  // A new element; what is given as text stays text.
  make(name, text, attributes) {
    const found = document.createElement(name);
    if (text !== undefined && text !== null) found.textContent = String(text);
    for (const [key, value] of Object.entries(attributes || {})) found.setAttribute(key, value);
    return found;
  },
};
(function (page) {
  const themes = page.read("themes");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const specs = {};
  const texts = {}; // the same as text, to see whether one has changed
  const drawn = new Map(); // by key: {place, text, theme, view}
  let printing = false;

  page.themeName = () => (dark.matches && !printing ? "dark" : "light");

  // Draw one chart where its place, its data or the theme is another than before. The old picture
  // stays until the new one is there.
  async function draw(key) {
    const place = document.getElementById("chart-" + key);
    if (!place || !specs[key]) return;
    const theme = page.themeName();
    const before = drawn.get(key);
    if (before && before.place === place && before.text === texts[key] && before.theme === theme) {
      return;
    }
    const entry = {place, text: texts[key], theme, view: null};
    drawn.set(key, entry);
    const fresh = page.make("div", null, {class: "drawing fresh"});
    place.append(fresh);
    try {
      const result = await window.vegaEmbed(fresh, specs[key], {
        actions: false,
        ast: true, // nothing is evaluated as code: the page forbids it
        config: themes[theme],
        defaultStyle: false,
        renderer: "canvas",
        tooltip: {theme, disableDefaultStyle: true},
      });
      entry.view = result.view;
    } catch (error) {
      fresh.textContent = "This chart could not be drawn: " + error.message;
      console.error(key, error);
    }
    if (drawn.get(key) !== entry) { // a newer one has been begun meanwhile
      if (entry.view) entry.view.finalize();
      fresh.remove();
      return;
    }
    for (const old of [...place.children]) if (old !== fresh) old.remove();
    fresh.classList.remove("fresh");
    if (before && before.view) before.view.finalize();
    page.countDrawn();
  }

  page.countDrawn = function () {
    const count = [...drawn.values()].filter((one) => one.view).length;
    document.documentElement.dataset.drawn = String(count + (page.parallelIsDrawn ? 1 : 0));
  };

  // Charts that are seen are drawn first and at once; the rest follows one by one, so that a print
  // has them all.
  const seen = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const key = entry.target.id.slice(6);
      if (entry.isIntersecting) seen.add(key); else seen.delete(key);
      if (entry.isIntersecting) draw(key);
    }
  }, {rootMargin: "300px"});

  async function drawAll() {
    for (const key of Object.keys(specs)) {
      await draw(key);
      await new Promise((done) => setTimeout(done));
    }
  }

  // Look for the charts' places, which may be new, and give them their height at once.
  page.placeCharts = function () {
    watcher.disconnect();
    for (const [key, spec] of Object.entries(specs)) {
      const place = document.getElementById("chart-" + key);
      if (!place) continue;
      place.style.minHeight = spec.height + "px";
      watcher.observe(place);
    }
  };

  // Take in new specifications by key; null takes one away.
  page.updateCharts = function (news) {
    for (const [key, spec] of Object.entries(news)) {
      if (spec === null) {
        delete specs[key];
        drawn.delete(key);
      } else {
        specs[key] = spec;
        texts[key] = JSON.stringify(spec);
      }
    }
    page.placeCharts();
    for (const key of seen) draw(key);
    page.countDrawn();
  };

  page.specOf = (key) => specs[key];
  page.drawAll = drawAll;
  dark.addEventListener("change", () => { drawAll(); page.drawParallel(); });
  window.addEventListener("beforeprint", () => { printing = true; drawAll(); page.drawParallel(); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); page.drawParallel(); });
})(window.sweepPage);
