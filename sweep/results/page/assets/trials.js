// Which trials are selected by brushing, and which are compared side by side.
"use strict";
(function (page) {
  const MOST_ROWS = 20;
  const MOST_COMPARED = 6;
  const COLOURS = ["#e0662f", "#1fa37a", "#d99a1c", "#b06cc4", "#3b8fd0", "#8a8f98"];
  let data = null;
  const chosen = []; // numbers of trials, in the order in which they were chosen

  const isNumber = (value) => typeof value === "number";
  const short = (value) => (isNumber(value) ? String(Number(value.toPrecision(6))) : value);

  // A trial's value of a parameter, as it is read.
  function shown(column, index) {
    const axis = data.axes[column];
    const value = data.params[column][index];
    if (value === null) return "";
    return axis.kind === "choice" ? axis.choices[value] : short(value);
  }

  function spent(seconds) {
    if (seconds === null) return "";
    if (seconds < 10) return seconds.toFixed(1) + " s";
    const whole = Math.round(seconds);
    const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    const two = (number) => String(number).padStart(2, "0");
    return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
  }

  function box(trial) {
    const found = page.make("input", null, {
      type: "checkbox", "data-trial": trial, "aria-label": `compare trial ${trial}`});
    found.checked = chosen.includes(trial);
    return found;
  }

  function row(cells, name) {
    const found = page.make("tr");
    for (const [text, isRight] of cells) {
      const cell = page.make(name || "td", text instanceof Node ? null : text);
      if (text instanceof Node) cell.append(text);
      if (isRight) cell.className = "n";
      found.append(cell);
    }
    return found;
  }

  // Show the best of the trials that are within all brushes; null: there is none.
  page.showSelected = function (indices) {
    const place = document.getElementById("selected");
    const bar = document.getElementById("selection-bar");
    if (!place || !bar) return;
    bar.classList.toggle("hidden", indices === null);
    place.classList.toggle("hidden", indices === null || !indices.length);
    if (indices === null) return;
    document.getElementById("selection-count").textContent =
      `${indices.length.toLocaleString("en")} of ${data.count.toLocaleString("en")} complete trials are within`
      + (indices.length > MOST_ROWS ? `; the best ${MOST_ROWS} of them:` : indices.length ? ":" : ".");
    const sign = data.direction === "minimize" ? 1 : -1;
    const best = [...indices].sort((a, b) =>
      data.feasible[b] - data.feasible[a] || sign * (data.value[a] - data.value[b]));
    const columns = data.drawn;
    const isRight = columns.map((column) => data.axes[column].kind !== "choice");
    const head = row([["compare"], ["trial", true], [data.metric, true],
      ...columns.map((column, at) => [data.axes[column].name, isRight[at]])], "th");
    const table = page.make("table");
    table.append(page.make("thead"), page.make("tbody"));
    table.firstChild.append(head);
    for (const index of best.slice(0, MOST_ROWS)) {
      table.lastChild.append(row([[box(data.trial[index])], [data.trial[index], true],
        [short(data.value[index]), true],
        ...columns.map((column, at) => [shown(column, index), isRight[at]])]));
    }
    place.replaceChildren(table);
  };

  function compare() {
    const section = document.getElementById("compare");
    if (!section || !data) return;
    const known = chosen.filter((trial) => data.trial.includes(trial));
    section.classList.toggle("hidden", !known.length);
    const link = document.getElementById("to-compared");
    link.classList.toggle("hidden", !known.length);
    link.textContent = known.length === 1 ? "1 trial chosen ↑" : `Compare ${known.length} trials ↑`;
    for (const one of document.querySelectorAll("input[data-trial]")) {
      one.checked = chosen.includes(Number(one.dataset.trial));
    }
    if (!known.length) return;
    const at = known.map((trial) => data.trial.indexOf(trial));
    const rows = [
      ["state", at.map((index) => data.states[data.state[index]])],
      ["rank", at.map((index) => data.rank[index] ?? "")],
      [data.metric, at.map((index) => (data.value[index] === null ? "" : short(data.value[index])))],
      ["attempts", at.map((index) => data.attempts[index])],
      ["training", at.map((index) => spent(data.seconds[index]))],
      ...data.axes.map((axis, column) => [axis.name, at.map((index) => shown(column, index))]),
    ];
    const table = page.make("table");
    table.append(page.make("thead"), page.make("tbody"));
    table.firstChild.append(row([[""], ...known.map((trial, place) => {
      const text = page.make("span", `trial ${trial}`);
      text.style.color = COLOURS[place];
      return [text, true];
    })], "th"));
    rows.forEach(([name, cells], place) => {
      const found = row(cells.map((text) => [text, true]));
      found.prepend(page.make("th", name, {scope: "row"}));
      const isParameter = place >= rows.length - data.axes.length;
      if (isParameter && new Set(cells.map(String)).size > 1) found.className = "differs";
      table.lastChild.append(found);
    });
    document.getElementById("compared").replaceChildren(table);
    drawCurves(known);
  }

  // The curves of compared trials: those of the page, or, where it is served, of any trial.
  async function drawCurves(trials) {
    let cells = [];
    const setup = page.read("setup");
    if (setup && setup.curves) {
      try {
        const answer = await fetch(setup.curves + "&trials=" + trials.join(","));
        if (answer.ok) cells = (await answer.json()).cells;
      } catch (error) { /* the page says itself that the server is gone */ }
    } else {
      const spec = page.specOf("curves");
      for (const layer of spec ? spec.layer : []) cells.push(...layer.data.values);
      cells = cells.filter((cell) => trials.includes(cell.trial));
    }
    if (trials.join() !== chosen.join()) return; // others were chosen meanwhile
    const names = trials.map((trial) => `trial ${trial}`);
    cells = cells.map((cell) => ({...cell, name: `trial ${cell.trial}`}));
    const spec = cells.length === 0 ? null : {
      $schema: "https://vega.github.io/schema/vega-lite/v6.json",
      width: "container", height: 240, autosize: {type: "fit-x", contains: "padding"},
      data: {values: cells},
      mark: {type: "line", point: true, strokeWidth: 2},
      encoding: {
        x: {field: "step", type: "quantitative", title: "step", scale: {zero: false, nice: false},
          axis: {tickMinStep: 1}},
        y: {field: "value", type: "quantitative", title: data.metric, scale: {zero: false}},
        color: {field: "name", type: "nominal", title: null,
          scale: {domain: names, range: COLOURS.slice(0, names.length)}},
        tooltip: [{field: "trial"}, {field: "step"}, {field: "value", title: data.metric}],
      },
    };
    document.getElementById("chart-compare").classList.toggle("hidden", spec === null);
    page.updateCharts({compare: spec});
  }

  document.addEventListener("change", (event) => {
    const trial = event.target.dataset ? event.target.dataset.trial : undefined;
    if (trial === undefined || event.target.type !== "checkbox") return;
    const number = Number(trial);
    if (event.target.checked) {
      chosen.push(number);
      if (chosen.length > MOST_COMPARED) chosen.shift();
    } else {
      chosen.splice(chosen.indexOf(number), 1);
    }
    compare();
  });
  document.addEventListener("click", async (event) => {
    if (event.target.id === "clear-brushes") page.clearBrushes();
    if (event.target.id === "clear-compared") {
      chosen.length = 0;
      compare();
    }
    if (event.target.id === "copy") await copy(event.target);
  });

  async function copy(button) {
    const code = document.getElementById("command");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch (error) {
      window.getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  // Take in the trials' data; what was chosen stays chosen.
  page.updateTrials = function (given) {
    data = given;
    page.updateParallel(data);
    compare();
  };
  // The page's tables or places may be new ones: show in them what was there.
  page.showTrialsAgain = function () {
    page.drawParallel();
    compare();
  };
})(window.sweepPage);
