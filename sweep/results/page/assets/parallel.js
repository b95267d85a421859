// Parallel coordinates of all complete trials on a canvas of our own: drag along an axis to keep the
// trials within. Vega-Lite redraws too slowly for thousands of lines under a moving pointer.
"use strict";
(function (page) {
  const HEIGHT = 392;
  const MARGIN = {left: 34, right: 64, top: 48, bottom: 46};
  const CLOSEST = 58; // pixels between two axes, so that their names and marks can be read
  const NEAR = 16; // pixels from an axis at which a drag belongs to it
  const GREYS = {light: "#c9ced6", dark: "#3d4550"};
  const INKS = {light: "#333a44", dark: "#c9d1d9"};
  const BACKS = {light: "#f6f8fa", dark: "#161b22"};
  const BROKEN = "#b06cc4";
  const STEPS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962",
    "#addc30", "#e7e419"];
  const COLOURS = 32; // lines of one colour are drawn together

  let data = null;
  let lines = []; // {index, ys, shade}
  let axes = [];
  let shown = []; // those that there is room for, by their places in axes
  const brushes = new Map(); // by axis: [low, high] of 0 to 1
  let canvas = null;
  let all = null; // every line, as a picture: coloured, and grey behind a selection
  let grey = null;
  let drag = null;
  let frame = 0;
  let askedAt = 0;

  const clamp = (y) => Math.min(1, Math.max(0, y));

  function place(axis, value) {
    if (value === null || value === undefined) return null;
    if (axis.kind === "choice") return (value + 0.5) / axis.choices.length;
    if (axis.low === axis.high) return 0.5;
    if (axis.kind === "log") return clamp(Math.log(value / axis.low) / Math.log(axis.high / axis.low));
    return clamp((value - axis.low) / (axis.high - axis.low));
  }

  function shadeOf(y) {
    const good = data.direction === "minimize" ? 1 - y : y;
    return Math.min(COLOURS - 1, Math.floor(good * COLOURS));
  }

  function mix(from, to, share) {
    const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
    const both = [1, 3, 5].map((at) => Math.round(part(from, at) * (1 - share) + part(to, at) * share));
    return `rgb(${both.join(" ")})`;
  }

  function colour(shade) {
    if (shade < 0) return BROKEN;
    // The darkest steps are not seen on black, the brightest not on white.
    const [low, high] = page.themeName() === "dark" ? [0.22, 1] : [0, 0.9];
    const at = (low + (high - low) * shade / (COLOURS - 1)) * (STEPS.length - 1);
    const step = Math.min(STEPS.length - 2, Math.floor(at));
    return mix(STEPS[step], STEPS[step + 1], at - step);
  }

  const room = () => canvas.clientWidth - MARGIN.left - MARGIN.right;
  const xOf = (place) => MARGIN.left + room() * place / (shown.length - 1);
  const yOf = (y) => HEIGHT - MARGIN.bottom - y * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const NOWHERE = -0.07; // of a parameter that a trial lacks

  function sheet() {
    const found = document.createElement("canvas");
    found.width = canvas.width;
    found.height = canvas.height;
    return found;
  }

  function pen(target) {
    const context = target.getContext("2d");
    const ratio = canvas.width / canvas.clientWidth;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
  }

  function stroke(context, some, colourOf) {
    const many = some.length > 2000;
    context.lineWidth = many ? 0.6 : 1.1;
    context.globalAlpha = many ? 0.35 : 0.6;
    const xs = shown.map((_, place) => xOf(place));
    let shade = null;
    for (const line of some) { // sorted: the best last, lines of one colour beside each other
      if (line.shade !== shade) {
        shade = line.shade;
        context.strokeStyle = colourOf(shade);
      }
      context.beginPath();
      for (let place = 0; place < xs.length; place += 1) {
        const y = line.ys[shown[place]];
        context.lineTo(xs[place], yOf(y === null ? NOWHERE : y));
      }
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  function isKept(line) {
    for (const [axis, [low, high]] of brushes) {
      const y = line.ys[axis];
      if (y === null || y < low || y > high) return false;
    }
    return true;
  }

  // A text that keeps its beginning and its end where there is no room for all of it.
  function fit(context, text, width) {
    if (context.measureText(text).width <= width) return text;
    for (let kept = text.length - 1; kept > 3; kept -= 1) {
      const head = Math.ceil(kept / 2);
      const short = text.slice(0, head) + "…" + text.slice(text.length - (kept - head));
      if (context.measureText(short).width <= width) return short;
    }
    return text.slice(0, 2) + "…";
  }

  // A number in the longest form that there is room for: cut, it would be another one.
  function fitNumber(context, text, width) {
    const value = Number(text);
    const forms = [text, ...[3, 2, 1].map((digits) => String(Number(value.toPrecision(digits)))),
      value.toExponential(), ...[2, 1, 0].map((digits) => value.toExponential(digits))];
    return forms.find((form) => context.measureText(form).width <= width) || forms[forms.length - 1];
  }

  function drawAxes(context) {
    const ink = INKS[page.themeName()];
    const font = "system-ui, 'Liberation Sans', sans-serif";
    const wide = room() / (shown.length - 1);
    const staggered = wide < 130;
    shown.forEach((index, place) => {
      const axis = axes[index], x = xOf(place);
      context.strokeStyle = ink;
      context.globalAlpha = 0.55;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, yOf(0));
      context.lineTo(x, yOf(1));
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = ink;
      context.font = `600 12px ${font}`;
      const isFirst = place === 0, isLast = place === shown.length - 1;
      context.textAlign = isFirst ? "left" : isLast ? "right" : "center";
      const width = (staggered ? 2 : 1) * wide * (isFirst || isLast ? 0.75 : 0.94);
      context.fillText(fit(context, axis.name, width), isFirst ? 4 : isLast ? canvas.clientWidth - 4 : x,
        staggered && place % 2 ? 14 : 30);
      context.font = `10.5px ${font}`;
      context.textAlign = "left";
      const marks = axis.kind === "choice"
        ? axis.choices.map((text, choice) => [place_(axis, choice), text])
        : [[0, axis.ends[0]], [1, axis.ends[1]]];
      if (data.lacking && lines.some((line) => line.ys[index] === null)) marks.push([NOWHERE, "none"]);
      const most = Math.floor((yOf(0) - yOf(1)) / 12);
      const step = Math.ceil(marks.length / most);
      marks.forEach(([y, text], mark) => {
        if (mark % step) return;
        const isNumber = axis.kind !== "choice" && text !== "none";
        const short = (isNumber ? fitNumber : fit)(context, text, isLast ? MARGIN.right - 8 : Math.max(34, wide * 0.6));
        context.lineWidth = 3;
        context.strokeStyle = BACKS[page.themeName()];
        context.strokeText(short, x + 5, yOf(y) + 4);
        context.fillText(short, x + 5, yOf(y) + 4);
      });
      const brush = brushes.get(index);
      if (brush) {
        context.fillStyle = "#e0662f";
        context.globalAlpha = 0.3;
        context.fillRect(x - 8, yOf(brush[1]), 16, yOf(brush[0]) - yOf(brush[1]));
        context.globalAlpha = 1;
        context.strokeStyle = "#e0662f";
        context.lineWidth = 1.2;
        context.strokeRect(x - 8, yOf(brush[1]), 16, yOf(brush[0]) - yOf(brush[1]));
      }
    });
    const hidden = axes.length - shown.length;
    if (!hidden) return;
    context.fillStyle = ink;
    context.font = `10.5px ${font}`;
    context.textAlign = "right";
    context.fillText(`${hidden} more in a wider window`, canvas.clientWidth - 4, HEIGHT - 4);
  }
  const place_ = place;

  // The most important parameters that there is room for, and the objective. What is brushed on
  // others is let go: nobody would see why lines are gone.
  function choose() {
    const most = Math.max(2, Math.floor(room() / CLOSEST) + 1);
    const last = axes.length - 1;
    shown = axes.map((_, index) => index).filter((index) => index < most - 1 || index === last);
    for (const index of [...brushes.keys()]) if (!shown.includes(index)) brushes.delete(index);
  }

  function paint() {
    frame = 0;
    const context = pen(canvas);
    context.clearRect(0, 0, canvas.clientWidth, HEIGHT);
    const kept = brushes.size ? lines.filter(isKept) : lines;
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (!brushes.size) {
      if (!all) stroke(pen(all = sheet()), lines, colour);
      context.drawImage(all, 0, 0);
    } else {
      if (!grey) stroke(pen(grey = sheet()), lines, () => GREYS[page.themeName()]);
      context.drawImage(grey, 0, 0);
    }
    context.restore();
    if (brushes.size) stroke(context, kept, colour);
    drawAxes(context);
    page.showSelected(brushes.size ? kept.map((line) => line.index) : null);
    if (askedAt) canvas.dataset.answeredMs = String(Math.round(performance.now() - askedAt));
    askedAt = 0;
  }

  function ask() {
    if (!askedAt) askedAt = performance.now();
    if (!frame) frame = requestAnimationFrame(paint);
  }

  function at(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = (HEIGHT - MARGIN.bottom - (event.clientY - box.top)) / (HEIGHT - MARGIN.top - MARGIN.bottom);
    let nearest = 0;
    shown.forEach((_, place) => {
      if (Math.abs(xOf(place) - x) < Math.abs(xOf(nearest) - x)) nearest = place;
    });
    return {axis: Math.abs(xOf(nearest) - x) <= NEAR ? shown[nearest] : null, y: clamp(y)};
  }

  function listen() {
    canvas.addEventListener("pointerdown", (event) => {
      const {axis, y} = at(event);
      if (axis === null) return;
      drag = {axis, from: y};
      canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const {y} = at(event);
      if (Math.abs(y - drag.from) < 0.01) return;
      brushes.set(drag.axis, [Math.min(y, drag.from), Math.max(y, drag.from)]);
      ask();
    });
    const end = (event) => {
      if (!drag) return;
      if (Math.abs(at(event).y - drag.from) < 0.01) brushes.delete(drag.axis);
      drag = null;
      ask();
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", page.clearBrushes);
    new ResizeObserver(page.drawParallel).observe(canvas);
  }

  page.clearBrushes = function () {
    brushes.clear();
    if (canvas) ask();
  };

  // Draw everything anew: its size, its theme or its data have changed.
  page.drawParallel = function () {
    const home = document.getElementById("chart-parallel");
    if (!home || !data || data.axes.length < 2) {
      canvas = null;
      page.parallelIsDrawn = false;
      return;
    }
    if (!canvas || canvas.parentNode !== home) {
      home.replaceChildren();
      canvas = page.make("canvas");
      home.append(canvas);
      listen();
    }
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
    canvas.height = Math.round(HEIGHT * ratio);
    all = grey = null;
    choose();
    page.parallelIsDrawn = true;
    page.countDrawn();
    if (!frame) frame = requestAnimationFrame(paint);
  };

  // Take in the trials. What was brushed stays brushed.
  page.updateParallel = function (given) {
    const before = axes.map((axis) => axis.name).join("\n");
    data = given;
    axes = data.drawn.map((index) => data.axes[index]);
    axes.push({...data.scale, name: data.metric});
    if (before !== axes.map((axis) => axis.name).join("\n")) brushes.clear();
    lines = [];
    data.lacking = false;
    data.trial.forEach((_, index) => {
      if (!data.onAxes[index]) return;
      const ys = data.drawn.map((column, axis) => place(axes[axis], data.params[column][index]));
      const y = place(data.scale, data.value[index]);
      ys.push(y);
      data.lacking = data.lacking || ys.includes(null);
      lines.push({index, ys, shade: data.feasible[index] ? shadeOf(y) : -1});
    });
    lines.sort((one, other) => one.shade - other.shade || other.index - one.index);
    page.drawParallel();
  };
})(window.sweepPage);
