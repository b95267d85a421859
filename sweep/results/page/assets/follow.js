// Asks the server that has made the page for what is new, and shows a trial's log as it grows.
"use strict";
(function (page) {
  const EVERY_MS = 1000;
  const AWAY_MS = 3000; // between two tries while the server does not answer
  const LOG_MOST = 400000; // characters that are kept on the page
  const parts = new Map(); // what the server has given last, by part
  let version = 0;
  let isPressed = false;
  for (const name of ["pointerdown", "pointerup", "pointercancel"]) {
    document.addEventListener(name, () => { isPressed = name === "pointerdown"; }, true);
  }
  let problem = ""; // what the server says of the database
  let log = null; // {trial, attempt, offset, timer} while one is shown

  function say(text) {
    const place = document.getElementById("problem");
    place.textContent = text;
    place.classList.toggle("hidden", !text);
  }

  // Put a part of the page anew. Pictures move into their new places.
  function replace(name, html) {
    if (parts.get(name) === html) return;
    parts.set(name, html);
    const place = document.getElementById("part-" + name);
    const pictures = new Map();
    for (const chart of place.querySelectorAll(".chart")) pictures.set(chart.id, chart);
    const fresh = page.make("template");
    fresh.innerHTML = html;
    for (const chart of fresh.content.querySelectorAll(".chart")) {
      const before = pictures.get(chart.id);
      if (before) chart.replaceWith(before);
    }
    place.replaceChildren(fresh.content);
  }

  // Ask for what is new; return what is wrong, in words.
  async function ask(setup) {
    const answer = await fetch(`${setup.news}&have=${version}`);
    if (answer.status === 204) return problem;
    if (answer.status === 401) {
      return "This page is no longer let in: open the address that `sweep serve` has printed.";
    }
    if (!answer.ok) return `The server answers ${answer.status}: ${await answer.text()}`;
    const news = await answer.json();
    // A button must not be replaced under a finger that presses it.
    while (isPressed) await new Promise((done) => setTimeout(done, 50));
    version = news.version;
    for (const [name, html] of Object.entries(news.parts || {})) replace(name, html);
    if (news.specs || news.parts) page.updateCharts(news.specs || {});
    if (news.data) page.updateTrials(news.data.trials);
    else if (news.parts) page.showTrialsAgain();
    if (news.about) problem = news.about.problem;
    document.documentElement.dataset.version = String(version);
    return problem;
  }

  page.follow = function (setup) {
    version = setup.version;
    problem = setup.problem;
    let timer = 0;
    let isAsking = false;
    async function turn() {
      clearTimeout(timer);
      if (isAsking || document.hidden) return; // a page that nobody sees keeps nothing awake
      isAsking = true;
      let pause = EVERY_MS;
      try {
        say(await ask(setup));
      } catch (error) {
        say("The server does not answer: it has ended, or the way to it is cut. What you see is from before. "
          + "`sweep serve` starts it again.");
        pause = AWAY_MS;
      }
      isAsking = false;
      timer = setTimeout(turn, pause);
    }
    document.addEventListener("visibilitychange", turn);
    turn();
    if (setup.log) listenForLogs(setup);
  };

  function listenForLogs(setup) {
    const dialog = document.getElementById("log");
    document.addEventListener("click", (event) => {
      const trial = event.target.dataset ? event.target.dataset.log : undefined;
      if (trial !== undefined) open(setup, Number(trial));
      if (event.target.id === "log-close") dialog.close();
    });
    document.getElementById("log-attempt").addEventListener("change", (event) => {
      open(setup, log.trial, Number(event.target.value));
    });
    dialog.addEventListener("close", () => {
      if (log) clearTimeout(log.timer);
      log = null;
    });
  }

  function open(setup, trial, attempt) {
    if (log) clearTimeout(log.timer);
    log = {trial, attempt: attempt || 0, offset: -1, timer: 0};
    document.getElementById("log-title").textContent = `Log of trial ${trial}`;
    document.getElementById("log-text").replaceChildren();
    document.getElementById("log-note").textContent = "";
    const dialog = document.getElementById("log");
    if (!dialog.open) dialog.showModal();
    grow(setup, log);
  }

  async function grow(setup, mine) {
    let more = false;
    try {
      const answer = await fetch(
        `${setup.log}&trial=${mine.trial}&attempt=${mine.attempt}&offset=${mine.offset}`);
      if (log !== mine) return;
      if (answer.ok) more = append(await answer.json());
      else document.getElementById("log-note").textContent = await answer.text();
    } catch (error) { /* the page says itself that the server is gone */ }
    if (log === mine) mine.timer = setTimeout(() => grow(setup, mine), more ? 0 : EVERY_MS);
  }

  // Add what is new to the log; return whether there is more at once.
  function append(part) {
    const place = document.getElementById("log-text");
    const choice = document.getElementById("log-attempt");
    if (choice.options.length !== part.attempts.length) {
      choice.replaceChildren(...part.attempts.map((number) =>
        page.make("option", `attempt ${number}`, {value: number})));
    }
    choice.value = String(part.attempt);
    choice.classList.toggle("hidden", part.attempts.length < 2);
    log.attempt = part.attempt;
    log.offset = part.offset;
    document.getElementById("log-note").textContent = part.note;
    const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    if (place.lastChild && place.lastChild.dataset && place.lastChild.dataset.rest) {
      place.lastChild.remove();
    }
    if (part.text) place.append(part.text);
    if (part.rest) place.append(page.make("span", part.rest, {"data-rest": "1"}));
    if (place.textContent.length > LOG_MOST) {
      place.textContent = place.textContent.slice(-LOG_MOST / 2);
    }
    if (atEnd) place.scrollTop = place.scrollHeight;
    return part.more;
  }
})(window.sweepPage);
